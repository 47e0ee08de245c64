// The CPU as a device: arenas in anonymous memory, modules as shared objects,
// commands run in order on OpenMP threads when they are submitted.
#pragma once

#include "runtime/device/Device.h"

namespace lmc::cpu {

std::unique_ptr<Device> makeCpuDevice(int threads);

} // namespace lmc::cpu
