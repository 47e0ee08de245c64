// lmc-run --nproc: starts this program once per rank. lmc-run --restarts: starts it again.
#pragma once

#include "runtime/settings/RunOptions.h"

#include <cstdint>

namespace lmc {

// Runs this command line, without its --nproc, as each of `ranks` ranks on this machine, and
// returns the exit code (tools/lmc-run/launch/LocalLaunch.h). Returns an Error if the command line
// or a launcher's environment says that this process is one of many ranks already.
Result<int> launchHere(int ranks, int argc, char **argv, const LaunchOptions &options);

// Runs this command line, without its --restarts, until it ends for good, and returns the exit code
// (tools/lmc-run/end/Supervise.h). The limit of `options` is that of all starts together.
Result<int> superviseHere(int64_t restarts, int argc, char **argv, const RunOptions &options);

} // namespace lmc
