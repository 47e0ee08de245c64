// Finds ranks that are busy longer than others in each step.
#pragma once

#include "runtime/comm/Progress.h"

#include <optional>
#include <vector>

namespace lmc {

struct SlowRanks {
  std::vector<int> ranks; // in ascending order
  double seconds = 0;     // the median of Progress::State::busySeconds of all slow ranks
  double others = 0;      // the median of busySeconds of the ranks that are not slow
};

// Returns the ranks whose busySeconds are at least 1.3 m and at least m + 0.01 s. m is the median
// of all ranks' busySeconds, or the lower of the two middle values. Returns nullopt if no rank is
// slow, if there is only one rank, or if a rank has not completed a window yet.
std::optional<SlowRanks> findSlowRanks(const std::vector<Progress::State> &states);

class SlowRankWatch {
public:
  // Must be called repeatedly with the states of all ranks. Returns the ranks that are slow in two
  // successive windows of Progress::kBusyWindow steps. Returns a rank at most once in 40 windows.
  std::optional<SlowRanks> observe(const std::vector<Progress::State> &states);

private:
  std::vector<uint64_t> judged; // State::windows of each rank at the latest judgment
  std::vector<int> suspects;    // the slow ranks of the latest judgment
  std::vector<uint64_t> quiet;  // per rank: the number of judgments until it may be reported again
};

} // namespace lmc
