// lmc-run --nproc: starts this program once per rank.
#pragma once

#include "runtime/comm/LaunchEnvironment.h"

namespace lmc {

// Runs this command line, without its --nproc, as each of `ranks` ranks on this machine, and
// returns the exit code (runtime/comm/LocalLaunch.h). Returns an Error if the command line or a
// launcher's environment says that this process is one of many ranks already.
Result<int> launchHere(int ranks, int argc, char **argv, const LaunchOptions &options);

} // namespace lmc
