// Divides the CPUs of a host among the threads of its ranks.
#pragma once

#include "runtime/comm/World.h"

#include <string>
#include <vector>

namespace lmc {

// The numbers of the CPUs that a rank may use, and their host.
struct RankCpus {
  std::string host;
  std::vector<int> cpus;
};

// Returns the number of threads of a rank. Each of its CPUs counts 1 / n, where n is the number of
// ranks that may use the CPU. The sum is rounded down, but is at least 1. For example, 4 ranks that
// may all use the same 16 CPUs get 4 threads each.
int fairThreads(const std::vector<RankCpus> &ranks, size_t rank);

// Returns the number of threads of this rank. All ranks must call it together.
Result<int> fairThreads(World &world);

} // namespace lmc
