// Starts all ranks of a run on this machine, without another launcher.
#pragma once

#include "ground/support/Result.h"

#include <string>
#include <vector>

namespace lmc {

// Runs `command` once per rank, and returns when all ranks have ended. The variables of torchrun
// (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR) and LMC_PORT tell a process its rank. Unless
// OMP_NUM_THREADS is set, each rank gets an equal share of the processors.
//
// Rank 0 shares this process's output. Lines of other ranks go to stderr, with "rank R: " before
// them. Ranks get the signals of kStopSignals. If a rank fails, the others are killed after
// `secondsToEnd`. If this process dies, the ranks get a SIGTERM.
//
// Returns the exit code of the first rank that failed by itself; else that of a rank that failed
// because of another one (RankFailed); else 0. A rank that a signal ended counts as RankFailed.
Result<int> launchRanks(int ranks, const std::vector<std::string> &command,
                        double secondsToEnd = 15);

} // namespace lmc
