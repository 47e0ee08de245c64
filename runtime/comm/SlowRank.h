// Finds ranks that are busy longer than the others, so that all wait for them in each step.
#pragma once

#include "runtime/comm/Progress.h"

#include <optional>
#include <vector>

namespace lmc {

struct SlowRanks {
  std::vector<int> ranks; // in ascending order
  double seconds = 0;     // the median of their Progress::State::busySeconds
  double others = 0;      // the median of the others' seconds
};

// Returns the ranks that are busy 1.3 times as long as is usual, and 10 ms longer: what is less can
// be the noise of a machine. What is usual is the median of all ranks; of two, the smaller one.
// Returns nullopt if there is no such rank, and until all are known.
std::optional<SlowRanks> findSlowRanks(const std::vector<Progress::State> &states);

// Decides when to warn of slow ranks.
class SlowRankWatch {
public:
  // Is given the states of all ranks now and then. Returns the ranks that are slow in two windows
  // of Progress::kBusyWindow steps in a row, so that a single pause is not reported, and no rank
  // more often than once in forty windows.
  std::optional<SlowRanks> observe(const std::vector<Progress::State> &states);

private:
  std::vector<uint64_t> judged; // by rank: the number of windows when it was judged last
  std::vector<int> suspects;    // the slow ranks of the latest judgment
  std::vector<uint64_t> quiet;  // by rank: in so many more judgments it is not reported
};

} // namespace lmc
