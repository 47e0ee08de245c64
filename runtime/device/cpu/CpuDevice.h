// The CPU as a device. Arenas are anonymous memory, modules are shared objects. Submitting a
// function runs its commands at once and in order, on OpenMP threads.
#pragma once

#include "runtime/device/Device.h"

namespace lmc::cpu {

std::unique_ptr<Device> makeCpuDevice(int threads);

} // namespace lmc::cpu
