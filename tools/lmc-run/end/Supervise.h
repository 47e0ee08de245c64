// lmc-run --restarts: a parent process that starts a run again after a failure whose cause may
// disappear by itself (Restarts.h).
#pragma once

#include "ground/support/Result.h"
#include "runtime/settings/TimeLimit.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

struct Supervision {
  std::vector<std::string> command; // program and arguments of the first start
  // The same without options that only the first start may have, such as --rewind.
  std::vector<std::string> again;
  std::string out;      // folder of the run
  std::string logs;     // folder of log.txt and events.jsonl of this rank
  int64_t restarts = 0; // most restarts without progress
  std::optional<TimeLimit> limit;
};

// The environment variable that tells the run its number of restarts.
inline constexpr const char *kRestartVariable = "LMC_RESTART";

// Runs the command, and starts it again as RestartPolicy decides, but not after a signal of
// kStopSignals, which the command gets too. Returns the exit code of the last start: Failure if a
// signal ended it, and Interrupted if a stop signal or the time limit came between two starts. If
// this process dies, the command gets a SIGTERM. Each restart is a line on stderr and in log.txt,
// and an event `restart`.
Result<int> supervise(const Supervision &supervision);

} // namespace lmc
