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

// Measures a group of at least two ranks, all of which must call it and get the same result. The
// bandwidth is that of the largest all-gather, of 64 KiB to 64 MiB, that takes less than about
// `seconds`. `now` returns the time in seconds.
Result<GroupSpeed> measureGroup(Communicator &group, double seconds,
                                const std::function<double()> &now = steadySeconds);

} // namespace lmc
