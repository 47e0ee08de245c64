#include "runtime/comm/SlowRank.h"

#include "ground/support/Median.h"

#include <algorithm>
#include <utility>

namespace lmc {

static constexpr double kRatio = 1.3, kExcess = 0.01; // kExcess is in seconds
static constexpr uint64_t kPause = 40;                // number of judgments

std::optional<SlowRanks> findSlowRanks(const std::vector<Progress::State> &states) {
  std::vector<double> sorted;
  for (const Progress::State &state : states) {
    if (state.windows == 0)
      return std::nullopt;
    sorted.push_back(state.busySeconds);
  }
  if (sorted.size() < 2)
    return std::nullopt;
  std::ranges::sort(sorted);
  const double usual = sorted[(sorted.size() - 1) / 2];
  SlowRanks slow;
  std::vector<double> ofSlow, ofOthers;
  for (size_t i = 0; i < states.size(); ++i) {
    const double seconds = states[i].busySeconds;
    const bool isSlow = seconds >= kRatio * usual && seconds >= usual + kExcess;
    (isSlow ? ofSlow : ofOthers).push_back(seconds);
    if (isSlow)
      slow.ranks.push_back(static_cast<int>(i));
  }
  if (slow.ranks.empty())
    return std::nullopt;
  slow.seconds = median(std::move(ofSlow));
  slow.others = median(std::move(ofOthers));
  return slow;
}

std::optional<SlowRanks> SlowRankWatch::observe(const std::vector<Progress::State> &states) {
  judged.resize(states.size());
  quiet.resize(states.size());
  for (size_t i = 0; i < states.size(); ++i)
    if (states[i].windows == judged[i])
      return std::nullopt;
  for (size_t i = 0; i < states.size(); ++i)
    judged[i] = states[i].windows;
  for (uint64_t &left : quiet)
    left -= left > 0;
  std::optional<SlowRanks> slow = findSlowRanks(states);
  const std::vector<int> before = std::exchange(suspects, slow ? slow->ranks : std::vector<int>());
  if (!slow)
    return std::nullopt;
  std::erase_if(slow->ranks, [&](int rank) {
    return !std::ranges::binary_search(before, rank) || quiet[static_cast<size_t>(rank)] > 0;
  });
  if (slow->ranks.empty())
    return std::nullopt;
  for (int rank : slow->ranks)
    quiet[static_cast<size_t>(rank)] = kPause;
  return slow;
}

} // namespace lmc
