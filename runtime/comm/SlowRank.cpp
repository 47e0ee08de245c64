#include "runtime/comm/SlowRank.h"

#include "runtime/support/Median.h"

#include <algorithm>

namespace lmc {

static constexpr double kRatio = 1.3, kExcess = 0.01; // seconds
static constexpr uint64_t kPause = 10;                // judgments

std::optional<SlowRank> findSlowRank(const std::vector<Progress::State> &ranks) {
  std::vector<double> busy;
  for (const Progress::State &state : ranks) {
    if (state.windows == 0)
      return std::nullopt;
    busy.push_back(state.busySeconds);
  }
  if (busy.size() < 2)
    return std::nullopt;
  const auto slowest = std::ranges::max_element(busy);
  SlowRank found{static_cast<int>(slowest - busy.begin()), *slowest};
  busy.erase(slowest);
  found.others = median(std::move(busy));
  if (found.seconds < kRatio * found.others || found.seconds < found.others + kExcess)
    return std::nullopt;
  return found;
}

std::optional<SlowRank> SlowRankWatch::observe(const std::vector<Progress::State> &ranks) {
  judged.resize(ranks.size());
  quiet.resize(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i)
    if (ranks[i].windows == judged[i]) // it has ended no window since
      return std::nullopt;
  for (size_t i = 0; i < ranks.size(); ++i)
    judged[i] = ranks[i].windows;
  for (uint64_t &left : quiet)
    left -= left > 0;
  const std::optional<SlowRank> found = findSlowRank(ranks);
  const std::optional<int> before = suspect;
  suspect = found ? std::optional(found->rank) : std::nullopt;
  if (!found || before != suspect || quiet[static_cast<size_t>(found->rank)] > 0)
    return std::nullopt;
  quiet[static_cast<size_t>(found->rank)] = kPause;
  return found;
}

} // namespace lmc
