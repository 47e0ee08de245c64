// Runs a CUDA plan on the host: the executor runs the source of its kernels, and the CPU device's
// library computes what a library computes on a GPU.
#pragma once

#include "runtime/device/Device.h"

#include <cstdint>
#include <memory>

namespace lmc::simt {

// Opens the device. A launch, and the `launches` of any other command that has them, run each
// kernel once, in the orders that `seed` gives, under all checks of the executor; submit() returns
// a failure as an Error. Matrix products run on the CPU's Gemm. The workspace arena starts as
// garbage that depends on `seed`.
std::unique_ptr<Device> makeSimtDevice(uint64_t seed);

} // namespace lmc::simt
