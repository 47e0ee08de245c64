// Measures how fast the ranks of a group exchange data.
#pragma once

#include "runtime/comm/Communicator.h"

#include <functional>

namespace lmc {

// Returns the time of the steady clock in seconds.
double steadySeconds();

// An all-gather over n ranks, after which each rank has B bytes, takes about
// latency + (n - 1) / n * B / bandwidth seconds.
struct GroupSpeed {
  double latency = 0;   // seconds
  double bandwidth = 0; // bytes/s
  uint64_t sent = 0;    // bytes that a rank sent for this measurement
};

// All ranks of the group call it, and get the same result. The bandwidth is that of the longest
// all-gather that fits into about `seconds`, of at most 64 MiB. On a link so slow that an
// all-gather of 64 KiB takes longer than `seconds`, only this one is measured. The group has at
// least two ranks. `now` returns the time in seconds.
Result<GroupSpeed> measureGroup(Communicator &group, double seconds,
                                const std::function<double()> &now = steadySeconds);

} // namespace lmc
