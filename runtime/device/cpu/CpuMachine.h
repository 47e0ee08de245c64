// Facts about the machine: CPU features, threads, memory, speed.
#pragma once

#include "ground/support/Result.h"
#include "runtime/device/cpu/kernels/Kernels.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lmc::cpu {

// Returns true if the flags of /proc/cpuinfo have `name` ("avx512_bf16").
bool hasFeature(std::string_view name);

const std::string &processorName();

// Returns the bytes of physical memory or, if that is less, the limit of the control group
// (cgroup).
uint64_t memoryBytes();

// Returns all kernel sets that this machine supports, from the narrowest vectors to the widest.
const std::vector<const KernelSet *> &kernelSets();

// Error: LMC_CPU_ISA is set, but names no kernel set that this machine supports.
Result<void> checkKernelSet();

// Returns `requested` if it is positive, else OMP_NUM_THREADS, else the number of CPUs that this
// process may run on.
int threadCount(int requested);

struct PeakSpeed {
  double flops; // FLOP/s of all threads together
  std::string source;
};

// Returns `threads` times the clock frequency times the FLOPs per cycle. These are the FLOPs of the
// fastest instructions that kernelSet() has for arithmetic in the type `compute`. The clock
// frequency is measured, because systems often report only the nominal frequency.
PeakSpeed peakSpeed(Storage compute, int threads);

} // namespace lmc::cpu
