// The CPU as a device. Arenas are anonymous memory, and modules are shared objects. submit() runs
// the commands of a function in order on OpenMP threads, and returns when they are complete.
#pragma once

#include "runtime/device/Device.h"

namespace lmc::cpu {

std::unique_ptr<Device> makeCpuDevice(const DeviceOptions &options);

} // namespace lmc::cpu
