// Facts about this machine: features, threads, memory, speed.
#pragma once

#include "runtime/device/cpu/kernels/Kernels.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace lmc::cpu {

// Returns true if the processor has a feature, given by its name in the flags of /proc/cpuinfo
// ("avx2", "avx512_bf16").
bool hasFeature(std::string_view name);

// Returns a name such as "AMD EPYC".
std::string processorName();

// Returns the physical memory, or the control group's limit if that is lower.
uint64_t memoryBytes();

// Returns `requested` if it is positive, else OMP_NUM_THREADS, else the number of CPUs that this
// process may run on.
int threadCount(int requested);

struct PeakSpeed {
  double flops; // per second, all threads
  std::string source;
};

// Returns threads x clock x FLOPs that the instruction set can start per cycle. The clock is
// measured, because the system often reports the nominal one.
PeakSpeed peakSpeed(Storage compute, int threads);

} // namespace lmc::cpu
