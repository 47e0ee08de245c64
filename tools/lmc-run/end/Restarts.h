// lmc-run --restarts: when a run that has ended is started again, and after how long.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <optional>
#include <string>

namespace lmc {

// How a process has ended.
struct ProcessEnd {
  int code = 0;   // the exit code
  int signal = 0; // that ended it; 0: it has an exit code
};

// Returns "signal 9 (Killed)" or "exit code 5 (another rank failed)".
std::string textOf(const ProcessEnd &end);

// Returns true for an end whose cause may pass: a signal, a failure of the machine
// (ExitCode::Failure) or of another rank (RankFailed). All others would come again (a mistake, a
// run that diverged), or are no failures (Success, Interrupted).
bool mayPass(const ProcessEnd &end);

class RestartPolicy {
public:
  static constexpr double kLongestWait = 60;

  // `most`: restarts without progress. `step`: the newest step that the run has done.
  RestartPolicy(int64_t most, uint64_t step) : most(most), best(step) {}

  struct Restart {
    int64_t number = 0; // restarts since the last progress, with this one
    double wait = 0;    // seconds before it: 1, 2, 4, ... up to kLongestWait
  };

  // Is given each end of the run, with the newest step that it had then done. A step beyond all
  // before is progress, and what is done again after a restart is not. Returns nullopt if the run
  // shall not be started again.
  std::optional<Restart> next(const ProcessEnd &end, uint64_t step);

private:
  const int64_t most;
  uint64_t best;
  int64_t vain = 0; // restarts since the last progress
};

} // namespace lmc
