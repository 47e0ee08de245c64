// Finds ranks that are busy longer than others, so that all ranks wait for them in each step.
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

// Returns the ranks that are busy 1.3 times as long as usual and at least 10 ms longer: a smaller
// difference can be noise. The usual time is the median of all ranks, or of two ranks the smaller
// one. Returns nullopt if there is no such rank, or if not all times are known.
std::optional<SlowRanks> findSlowRanks(const std::vector<Progress::State> &states);

// Decides when to warn of slow ranks.
class SlowRankWatch {
public:
  // Must be called now and then with the states of all ranks. Returns the ranks that are slow in
  // two successive windows of Progress::kBusyWindow steps, so that a single pause is not reported.
  // A rank is reported at most once in forty windows.
  std::optional<SlowRanks> observe(const std::vector<Progress::State> &states);

private:
  std::vector<uint64_t> judged; // by rank, the number of windows at its last judgment
  std::vector<int> suspects;    // the slow ranks of the latest judgment
  std::vector<uint64_t> quiet;  // by rank, the number of judgments without a report to come
};

} // namespace lmc
