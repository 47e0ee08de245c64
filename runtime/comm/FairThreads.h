// Computes how many threads a rank uses, so that the ranks of a host share its CPUs.
#pragma once

#include "runtime/comm/World.h"

#include <string>
#include <vector>

namespace lmc {

// The CPUs that a rank may use, by their numbers, and the host that they are in.
struct RankCpus {
  std::string host;
  std::vector<int> cpus;
};

// Returns the threads of a rank, at least 1: the sum over its CPUs of 1 / n, rounded down, where n
// ranks of its host may use the CPU. So ranks that may all use 16 CPUs divide them, and a rank to
// which a launcher has bound CPUs of its own uses all of these.
int fairThreads(const std::vector<RankCpus> &ranks, size_t rank);

// Returns the threads of this rank, by the present scheduling affinity of all ranks' processes. All
// ranks call it together.
Result<int> fairThreads(World &world);

} // namespace lmc
