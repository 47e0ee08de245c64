// Runs a CUDA plan on the host. The executor (Executor.h) runs the CUDA source of the plan's
// kernels; the CPU device's code runs matrix products and copies.
#pragma once

#include "runtime/device/Device.h"

#include <cstdint>
#include <memory>

namespace lmc::simt {

// Opens the device. Each kernel launch of a command runs once, in the random order that `seed`
// gives, with all checks of the executor; a wait returns a failed check as an Error. Nothing is
// executed before somebody waits. Matrix products use the CPU device's Gemm, collectives the groups
// of `world`. The workspace arena starts as garbage that depends on `seed`.
std::unique_ptr<Device> makeSimtDevice(uint64_t seed, World *world = nullptr);

} // namespace lmc::simt
