#include "tools/lmc-run/check/MeasureGroup.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace lmc {

// The bytes of an all-gather's result: minimum, maximum, and growth from one to the next.
static constexpr uint64_t kLeast = 64 << 10, kMost = 64 << 20, kGrowth = 4;
// The latency is the minimum of this many measurements, because a busy machine delays some.
static constexpr int kLatencies = 9;

double steadySeconds() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

Result<GroupSpeed> measureGroup(Communicator &group, double seconds,
                                const std::function<double()> &now) {
  const auto ranks = static_cast<uint64_t>(group.size());
  GroupSpeed speed;
  std::vector<char> x(sizeof(double)), d;

  // Returns the seconds until every rank has all bytes.
  auto gather = [&](uint64_t bytes) -> Result<double> {
    x.resize(bytes);
    d.resize(bytes * ranks);
    LMC_TRY(group.barrier());
    const double start = now();
    LMC_TRY(group.allGather(x.data(), d.data(), bytes));
    const double mine = now() - start;
    std::vector<double> all(ranks);
    LMC_TRY(group.allGather(&mine, all.data(), sizeof mine));
    speed.sent += (bytes + sizeof mine) * (ranks - 1);
    return *std::ranges::max_element(all);
  };

  for (int i = 0; i < kLatencies; ++i) {
    LMC_LET(time, gather(sizeof(double)));
    speed.latency = i == 0 ? *time : std::min(speed.latency, *time);
  }

  // The last size may take at most a third of `seconds`, because it is measured twice.
  uint64_t bytes = std::max<uint64_t>(sizeof(double), kLeast / ranks);
  for (;;) {
    LMC_LET(time, gather(bytes));
    const bool isLast = *time > seconds / (3 * double(kGrowth)) || bytes * ranks * kGrowth > kMost;
    double best = *time;
    if (isLast && best < seconds / 3) {
      LMC_LET(again, gather(bytes));
      best = std::min(best, *again);
    }
    if (isLast) {
      // Counts at least half of the time: if most of it is latency, the difference is noise.
      speed.bandwidth = double(bytes * (ranks - 1)) / std::max(best - speed.latency, best / 2);
      return speed;
    }
    bytes *= kGrowth;
  }
}

} // namespace lmc
