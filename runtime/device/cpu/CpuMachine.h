// What the machine is: features, threads, memory, speed.
#pragma once

#include "runtime/device/cpu/kernels/Kernels.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace lmc::cpu {

// Whether the processor has a feature, by its name among the flags of /proc/cpuinfo
// ("avx2", "avx512_bf16").
bool hasFeature(std::string_view name);

// "AMD EPYC"
std::string processorName();

// Physical memory, or the control group's limit where it is lower.
uint64_t memoryBytes();

// `requested`, or OMP_NUM_THREADS, or the CPUs this process may run on.
int threadCount(int requested);

struct PeakSpeed {
  double flops; // per second, all threads
  std::string source;
};

// Threads x clock x FLOPs per cycle that the instruction set can start. The clock
// is measured, because what the system reports is often the nominal one.
PeakSpeed peakSpeed(Storage compute, int threads);

} // namespace lmc::cpu
