// Finds a rank that makes no progress although others wait for it.
#pragma once

#include "runtime/comm/Progress.h"

#include <optional>
#include <string>
#include <vector>

namespace lmc {

// The maximum time for which a rank may make no progress.
struct StallLimits {
  // The limit while it reads data or computes: the larger of `seconds`, and of `steps` times the
  // longest of the latest steps (Progress::State::stepSeconds). While it measures links: `seconds`.
  double seconds = 10, steps = 3;
  // The limit for anything else, such as a save, which may take long; until stepSeconds is known;
  // and while all ranks wait: a slow network then delays them, as a lost rank would be silent.
  double otherSeconds = 1800;
};

// The facts that rank 0 knows about a rank.
struct RankProgress {
  Progress::State state;
  double seconds = 0; // since state.moves was another number
  bool isHere = true; // false if the rank has left in order
};

struct Stall {
  int rank = 0;       // -1 if all ranks wait for each other
  double seconds = 0; // seconds since the rank, or any rank, made progress
};

// Returns how long a rank in this state may make no progress while others wait for it.
// `stepSeconds` is the maximum of Progress::State::stepSeconds over all ranks.
double limitOf(const Progress::State &state, double stepSeconds, const StallLimits &limits);

// Returns the activity of a rank, its step, and what the rank waits for: "computing, step 17:
// micro_first, micro-step 2 of 8; waits for its device", "saving, step 20: writing PATH for 31 s".
std::string describe(const Progress::State &state);

// Returns a rank that does not wait and has made no progress for its limit, while another rank
// waits for as long; of several, the one without progress for the longest time. If all ranks wait
// for `otherSeconds`, none can be named.
std::optional<Stall> findStall(const std::vector<RankProgress> &ranks, const StallLimits &limits);

} // namespace lmc
