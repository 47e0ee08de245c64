// Starts all ranks of a run on this machine, without another launcher.
#pragma once

#include "ground/support/Result.h"

#include <string>
#include <vector>

namespace lmc {

// Starts the program `command[0]` with the arguments `command` as each of `ranks` ranks, and
// returns when all have ended. What torchrun's environment has (RANK, WORLD_SIZE, LOCAL_RANK,
// MASTER_ADDR) and LMC_PORT say which rank a process is. If OMP_NUM_THREADS is not set, each rank
// gets an equal part of the processors.
//
// Rank 0 has this process's output. Lines of the other ranks go to stderr, with "rank R: " before
// each. Signals of kStopSignals are passed on. When a rank has failed, those that have
// not ended `secondsToEnd` later are killed. If this process dies, the ranks get a SIGTERM.
//
// Returns the exit code of the rank that failed first, but one of a rank that failed because of
// another (ExitCode::RankFailed) only if there is no other one. A rank that was ended by a signal
// counts as RankFailed, and is reported on stderr.
Result<int> launchRanks(int ranks, const std::vector<std::string> &command,
                        double secondsToEnd = 15);

} // namespace lmc
