// lmc-run --restarts: a parent process that starts a run again when it has failed for a cause that
// may pass (Restarts.h).
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
  // The same without options that only the first start may have, such as --rewind. It is used after
  // a start that has recorded itself in the folder of the run.
  std::vector<std::string> again;
  std::string out;      // folder of the run
  std::string logs;     // folder of log.txt and events.jsonl of this rank
  int64_t restarts = 0; // most restarts without progress
  std::optional<TimeLimit> limit;
};

// The environment variable with the number of restarts, for the run.
inline constexpr const char *kRestartVariable = "LMC_RESTART";

// Runs the command until it ends for good, and returns its exit code; ExitCode::Failure if a signal
// ended it, and Interrupted if the run was asked to stop, or its time was over, between two starts.
// The signals of kStopSignals are passed on to the command, which is not started again after one of
// them. If this process dies, the command gets a SIGTERM. Each restart is a line on stderr and in
// log.txt, and an event `restart` in events.jsonl.
Result<int> supervise(const Supervision &supervision);

} // namespace lmc
