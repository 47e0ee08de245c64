// Finds a rank that makes no progress although others wait for it.
#pragma once

#include "runtime/comm/Progress.h"

#include <optional>
#include <string>
#include <vector>

namespace lmc {

// The maximum times, in seconds, for which a rank may make no progress.
struct StallLimits {
  // While the rank reads data or computes, the limit is max(seconds, steps * stepSeconds); for
  // stepSeconds see Progress::State. While it measures links, the limit is `seconds`.
  double seconds = 10, steps = 3;
  // The limit for other activities, such as a save, while stepSeconds is not known, and while all
  // ranks wait, for example because the network is slow.
  double otherSeconds = 1800;
};

struct RankProgress {
  Progress::State state;
  double seconds = 0; // seconds since state.moves changed
  bool isHere = true; // false if the rank has left in order
};

struct Stall {
  int rank = 0;       // -1 if all ranks wait for each other
  double seconds = 0; // seconds since the rank, or any rank, made progress
};

// Returns the seconds for which a rank in this state may make no progress. `stepSeconds` is the
// maximum over all ranks.
double limitOf(const Progress::State &state, double stepSeconds, const StallLimits &limits);

// Returns a text such as "computing, step 17: micro_first, micro-step 2 of 8; waits for its device"
// or "saving, step 20: writing PATH for 31 s".
std::string describe(const Progress::State &state);

// Returns the rank that has made no progress for the longest time, if it does not wait, and if this
// time and another rank's wait reach its limit. Returns a Stall without a rank if all ranks have
// waited for limits.otherSeconds.
std::optional<Stall> findStall(const std::vector<RankProgress> &ranks, const StallLimits &limits);

} // namespace lmc
