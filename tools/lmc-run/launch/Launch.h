// lmc-run --nproc: starts this program once per rank. lmc-run --restarts: starts it again.
#pragma once

#include "runtime/settings/RunOptions.h"

#include <cstdint>

namespace lmc {

// Runs this command line, without its --nproc, as each of `ranks` ranks on this machine, and
// returns the exit code. Error: this process is already one of several ranks.
Result<int> launchHere(int ranks, int argc, char **argv, const LaunchOptions &options);

// Runs this command line, without its --restarts, by supervise(). Returns the exit code. The time
// limit is for all starts together.
Result<int> superviseHere(int64_t restarts, int argc, char **argv, const RunOptions &options);

} // namespace lmc
