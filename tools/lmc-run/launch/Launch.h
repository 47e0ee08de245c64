// lmc-run --nproc starts this program once per rank. lmc-run --restarts starts it again.
#pragma once

#include "runtime/settings/RunOptions.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

// Runs `command` once per rank, and returns when all ranks have ended. The variables of torchrun
// (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR) and LMC_PORT tell a process its rank. Unless
// OMP_NUM_THREADS is set, each rank gets an equal share of the processors.
//
// Rank 0 writes to this process's output. Lines of other ranks go to stderr, with "rank R: " before
// them. Stop signals (kStopSignals) are passed on to all ranks. If a rank fails, the other ranks
// are killed after `secondsToEnd`. If this process dies, the ranks get a SIGTERM.
//
// Returns the exit code of the first rank that failed by itself. If there is none, but a rank
// failed because of another one or was ended by a signal, returns RankFailed; else 0.
Result<int> launchRanks(int ranks, const std::vector<std::string> &command,
                        double secondsToEnd = 15);

// Starts `ranks` ranks on this machine with this command line, but without its option --nproc.
// Returns the exit code. Error: this process is already one of several ranks.
Result<int> launchHere(int ranks, int argc, char **argv, const LaunchOptions &options);

// Passes this command line, but without its option --restarts, to supervise(). Returns the exit
// code. The time limit is for all starts together.
Result<int> superviseHere(int64_t restarts, int argc, char **argv, const RunOptions &options);

} // namespace lmc
