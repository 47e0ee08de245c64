// Finds a rank that computes longer than the others, so that all wait for it in each step.
#pragma once

#include "runtime/comm/Progress.h"

#include <optional>
#include <vector>

namespace lmc {

struct SlowRank {
  int rank = 0;
  double seconds = 0; // that it is busy in a step (Progress::State::busySeconds)
  double others = 0;  // the median of the others' seconds
};

// Returns the rank that is busy the longest if that is 1.3 times as long as the others' median, and
// 10 ms longer: what is less can be the noise of a machine. Returns nullopt until all are known.
std::optional<SlowRank> findSlowRank(const std::vector<Progress::State> &ranks);

// Decides when to warn of a slow rank.
class SlowRankWatch {
public:
  // Is given the states of all ranks now and then. Returns a rank that is slow in two windows of
  // Progress::kWindow steps in a row, so that a single pause is not reported, and no rank more
  // often than once in ten windows.
  std::optional<SlowRank> observe(const std::vector<Progress::State> &ranks);

private:
  std::vector<uint64_t> judged; // by rank: the number of windows when it was judged last
  std::optional<int> suspect;   // the slow rank of the latest judgment
  std::vector<uint64_t> quiet;  // by rank: in so many more judgments it is not reported
};

} // namespace lmc
