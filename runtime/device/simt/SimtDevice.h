// A CUDA plan on the host: its kernels' source runs on the executor, what a library does on a
// GPU is done by the CPU's.
#pragma once

#include "runtime/device/Device.h"

#include <cstdint>
#include <memory>

namespace lmc::simt {

// A launch, and the `launches` of any other command that has them, run each kernel once,
// in the orders that `seed` gives, under all of the executor's checks; a failure is submit()'s
// Error. Matrix products are the CPU's Gemm. The workspace arena starts as garbage that depends
// on `seed`.
std::unique_ptr<Device> makeSimtDevice(uint64_t seed);

} // namespace lmc::simt
