// Finds ranks that are busy longer than others in each step.
#pragma once

#include "runtime/comm/Progress.h"

#include <optional>
#include <vector>

namespace lmc {

struct SlowRanks {
  std::vector<int> ranks; // in ascending order
  double seconds = 0;     // the median of Progress::State::busySeconds of these ranks
  double others = 0;      // the median of busySeconds of all other ranks
};

// Returns the ranks whose busySeconds are at least 1.3 times the median of all ranks and at least
// 10 ms longer. Of two ranks, the shorter time is the median. Returns nullopt if there is no such
// rank, or if not all times are known.
std::optional<SlowRanks> findSlowRanks(const std::vector<Progress::State> &states);

class SlowRankWatch {
public:
  // Must be called repeatedly with the states of all ranks. Returns the ranks that are slow in two
  // successive windows, but each at most once in forty windows.
  std::optional<SlowRanks> observe(const std::vector<Progress::State> &states);

private:
  std::vector<uint64_t> judged; // State::windows of each rank at the latest judgment
  std::vector<int> suspects;    // the slow ranks of the latest judgment
  std::vector<uint64_t> quiet;  // per rank: the number of judgments before a new report
};

} // namespace lmc
