// Finds a rank that makes no progress although others wait for it.
#pragma once

#include "runtime/comm/Progress.h"

#include <optional>
#include <string>
#include <vector>

namespace lmc {

// Limits for the time that a rank may spend without progress.
struct StallLimits {
  // A rank that reads data or computes has the limit max(seconds, steps * stepSeconds) seconds,
  // with the stepSeconds of limitOf(). A rank that measures links has the limit `seconds`.
  double seconds = 10, steps = 3;
  // This limit, in seconds, applies in all other cases: for another activity, such as a save; while
  // stepSeconds is not known; or if all ranks wait.
  double otherSeconds = 1800;
};

struct RankProgress {
  Progress::State state;
  double seconds = 0; // seconds since state.moves changed
  bool isHere = true; // false if the rank has left or has no connection
};

struct Stall {
  int rank = 0;       // -1 if all ranks wait for each other
  double seconds = 0; // seconds without progress: of `rank`, or of all ranks if `rank` is -1
};

// Returns the maximum number of seconds for which a rank in this state may make no progress.
// `stepSeconds` is the maximum of State::stepSeconds over all ranks.
double limitOf(const Progress::State &state, double stepSeconds, const StallLimits &limits);

// Returns a text such as "computing, step 17: micro_first, micro-step 2 of 8; waits for its device"
// or "saving, step 20: writing PATH for 31 s".
std::string describe(const Progress::State &state);

// A rank hangs if it does not wait and has made no progress for the time L = limitOf(), while
// another rank has waited for at least L. Returns the rank that has hung for the longest time. If
// all ranks have waited for limits.otherSeconds, returns a Stall without a rank.
std::optional<Stall> findStall(const std::vector<RankProgress> &ranks, const StallLimits &limits);

} // namespace lmc
