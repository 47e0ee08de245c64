#include "runtime/comm/FairThreads.h"

#include "runtime/comm/Agree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include <sched.h>

namespace lmc {

int fairThreads(const std::vector<RankCpus> &ranks, size_t rank) {
  double sum = 0;
  for (int cpu : ranks[rank].cpus)
    sum += 1.0 / static_cast<double>(std::ranges::count_if(ranks, [&](const RankCpus &other) {
             return other.host == ranks[rank].host && std::ranges::count(other.cpus, cpu) > 0;
           }));
  return std::max(1, static_cast<int>(sum + 1e-6)); // 1e-6: 1/3 + 1/3 + 1/3 may be rounded below 1
}

// Returns the CPUs that this process may use.
static std::vector<int> allowedCpus() {
  std::vector<int> cpus;
  constexpr int kMost = 1 << 13; // the maximum number of CPUs that Linux supports
  cpu_set_t *set = CPU_ALLOC(kMost);
  const size_t bytes = CPU_ALLOC_SIZE(kMost);
  CPU_ZERO_S(bytes, set);
  if (::sched_getaffinity(0, bytes, set) == 0)
    for (int cpu = 0; cpu < kMost; ++cpu)
      if (CPU_ISSET_S(cpu, bytes, set))
        cpus.push_back(cpu);
  CPU_FREE(set);
  return cpus;
}

Result<int> fairThreads(World &world) {
  LMC_LET(texts, gatherTexts(world.all(), fmt::format("{}", fmt::join(allowedCpus(), " "))));
  std::vector<RankCpus> ranks;
  for (int rank = 0; rank < world.size(); ++rank) {
    ranks.push_back({world.hostOf(rank), {}});
    std::istringstream numbers((*texts)[static_cast<size_t>(rank)]);
    for (int cpu; numbers >> cpu;)
      ranks.back().cpus.push_back(cpu);
  }
  return fairThreads(ranks, static_cast<size_t>(world.rank()));
}

} // namespace lmc
