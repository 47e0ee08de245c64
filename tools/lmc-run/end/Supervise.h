// lmc-run --restarts: a parent process that starts a run again after a failure whose cause may
// disappear by itself.
#pragma once

#include "ground/support/Result.h"
#include "runtime/settings/TimeLimit.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// How a process has ended.
struct ProcessEnd {
  int code = 0;   // the exit code
  int signal = 0; // signal that ended the process; 0: it has an exit code
};

// Returns "signal 9 (Killed)" or "exit code 5 (another rank failed)".
std::string textOf(const ProcessEnd &end);

class RestartPolicy {
public:
  static constexpr double kLongestWait = 60;

  // `most`: maximum number of restarts without progress. `step`: the step that the run has reached.
  RestartPolicy(int64_t most, uint64_t step) : most(most), best(step) {}

  struct Restart {
    int64_t number = 0; // number of this restart since the last progress
    double wait = 0;    // seconds to wait before this restart: 1, 2, 4, ... up to kLongestWait
  };

  // Must be called after each end of the run. `step` is the last step that the run has reached. The
  // run has made progress if `step` exceeds all earlier ones. Returns nullopt if the run must not
  // start again.
  std::optional<Restart> next(const ProcessEnd &end, uint64_t step);

private:
  const int64_t most;
  uint64_t best;
  int64_t vain = 0; // restarts since the last progress
};

struct Supervision {
  std::vector<std::string> command; // program and arguments of the first start
  // The command of each start after a start of `command` has written run.json. It lacks the options
  // for one start only, such as --rewind.
  std::vector<std::string> again;
  std::string out;      // folder of the run
  std::string logs;     // folder of log.txt and events.jsonl of this rank
  int64_t restarts = 0; // maximum number of restarts without progress
  std::optional<TimeLimit> limit;
};

// The environment variable that tells the run its number of restarts.
inline constexpr const char *kRestartVariable = "LMC_RESTART";

// Runs the command, and starts it again as RestartPolicy decides. A stop signal (kStopSignals) is
// passed on to the command, and no restart follows. Returns the exit code of the last start,
// Failure if a signal ended it, or Interrupted if a stop signal or the time limit came between two
// starts. If this process dies, the command gets a SIGTERM. Each restart writes a line to stderr
// and to log.txt, and an event `restart`.
Result<int> supervise(const Supervision &supervision);

} // namespace lmc
