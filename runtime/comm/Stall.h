// Finds a rank that makes no progress although others wait for it.
#pragma once

#include "runtime/comm/Progress.h"

#include <optional>
#include <string>
#include <vector>

namespace lmc {

// How long a rank may make no progress.
struct StallLimits {
  // While it reads data or computes: the longer of `seconds` and of `steps` times the longest of
  // the latest steps (Progress::State::stepSeconds). While it measures links: `seconds`.
  double seconds = 10, steps = 3;
  // While it does anything else, which may take long, such as a save; until stepSeconds is known;
  // and while all ranks wait: a slow network then delays them, because a lost rank would be silent.
  double otherSeconds = 1800;
};

// What rank 0 knows of a rank.
struct RankProgress {
  Progress::State state;
  double seconds = 0; // since state.moves was another number
  bool isHere = true; // false: it has left in order
};

struct Stall {
  int rank = 0;       // -1: all ranks wait for each other
  double seconds = 0; // since the last progress of the rank, or of any rank
};

// Returns how long a rank in this state may make no progress while others wait for it.
// `stepSeconds`: the longest Progress::State::stepSeconds of all ranks.
double limitOf(const Progress::State &state, double stepSeconds, const StallLimits &limits);

// Returns what a rank does, in which step, and what it waits for: "computing, step 17: micro_first,
// micro-step 2 of 8; waits for its device", "saving, step 20: writing PATH for 31 s".
std::string describe(const Progress::State &state);

// Returns a rank that does not wait and has not got on for the time of its limit, while another
// rank waits that long; of several, the one that has not got on for the longest time. If all ranks
// wait for `otherSeconds`, none can be named.
std::optional<Stall> findStall(const std::vector<RankProgress> &ranks, const StallLimits &limits);

} // namespace lmc
