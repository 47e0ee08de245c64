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
  std::vector<std::string> command; // the program, and the arguments of the first start
  // The same without what only a first start may do, such as --rewind: for the starts after one
  // that has recorded itself in the folder of the run.
  std::vector<std::string> again;
  std::string out;      // folder of the run
  std::string logs;     // folder of log.txt and events.jsonl of this rank
  int64_t restarts = 0; // most restarts without progress
  std::optional<TimeLimit> limit;
};

// The variable of the environment that tells a run how often it was started again.
inline constexpr const char *kRestartVariable = "LMC_RESTART";

// Runs the command until it ends for good, and returns its exit code; ExitCode::Failure if a signal
// ended it, and Interrupted if the run was asked to stop, or its time was over, between two starts.
// The signals of kStopSignals go on to the command, which is not started again after one of
// them. If this process dies, the command gets a SIGTERM. Each restart is a line on stderr and in
// log.txt, and an event `restart` in events.jsonl.
Result<int> supervise(const Supervision &supervision);

} // namespace lmc
