// lmc-run --nproc: starts this program once per rank. lmc-run --restarts: starts it again.
#pragma once

#include "runtime/settings/RunOptions.h"

#include <cstdint>

namespace lmc {

// Runs this command line, without its --nproc, as each of `ranks` ranks on this machine, and
// returns the exit code (tools/lmc-run/launch/LocalLaunch.h). Error: by its command line or a
// launcher's environment, this process is already one of several ranks.
Result<int> launchHere(int ranks, int argc, char **argv, const LaunchOptions &options);

// Runs this command line, without its --restarts, and restarts it as tools/lmc-run/end/Supervise.h
// describes. Returns the exit code. The time limit of `options` is for all starts together.
Result<int> superviseHere(int64_t restarts, int argc, char **argv, const RunOptions &options);

} // namespace lmc
