// Starts all ranks of a run on this machine, without another launcher.
#pragma once

#include "ground/support/Result.h"

#include <string>
#include <vector>

namespace lmc {

// Starts the program `command[0]` with the arguments `command` as each of `ranks` ranks, and
// returns when all have ended. The variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK,
// MASTER_ADDR) and LMC_PORT tell a process its rank. If OMP_NUM_THREADS is not set, each rank gets
// an equal part of the processors.
//
// Rank 0 has this process's output. Lines of the other ranks go to stderr, with "rank R: " before
// each. Signals of kStopSignals are passed on. When a rank has failed, those that have not ended
// `secondsToEnd` later are killed. If this process dies, the ranks get a SIGTERM.
//
// Returns the exit code of the first rank that failed by itself; if there is none, that of one that
// failed because of another (ExitCode::RankFailed). A rank that was ended by a signal counts as
// RankFailed, and is reported on stderr.
Result<int> launchRanks(int ranks, const std::vector<std::string> &command,
                        double secondsToEnd = 15);

} // namespace lmc
