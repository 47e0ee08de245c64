// lmc-run --restarts: decides if and when a run that has ended is started again.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <optional>
#include <string>

namespace lmc {

// How a process has ended.
struct ProcessEnd {
  int code = 0;   // the exit code
  int signal = 0; // signal that ended the process; 0: it has an exit code
};

// Returns "signal 9 (Killed)" or "exit code 5 (another rank failed)".
std::string textOf(const ProcessEnd &end);

// Returns true if the cause of the end may disappear by itself: a signal, or a failure of the
// machine or of another rank.
bool mayPass(const ProcessEnd &end);

class RestartPolicy {
public:
  static constexpr double kLongestWait = 60;

  // `most`: maximum number of restarts without progress. `step`: last step that the run has done.
  RestartPolicy(int64_t most, uint64_t step) : most(most), best(step) {}

  struct Restart {
    int64_t number = 0; // number of this restart since the last progress
    double wait = 0;    // seconds to wait before: 1, 2, 4, ... up to kLongestWait
  };

  // Must be called after each end of the run. `step` is the newest step that the run had done by
  // then; only a step beyond all earlier ones is progress. Returns nullopt if the run must not
  // start again.
  std::optional<Restart> next(const ProcessEnd &end, uint64_t step);

private:
  const int64_t most;
  uint64_t best;
  int64_t vain = 0; // restarts since the last progress
};

} // namespace lmc
