// Starts all ranks of a run on this machine, without another launcher.
#pragma once

#include "ground/support/Result.h"

#include <string>
#include <vector>

namespace lmc {

// Starts the program `command[0]` with the arguments `command` once per rank, and returns when all
// ranks have ended. The variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR) and
// LMC_PORT tell a process its rank. If OMP_NUM_THREADS is not set, each rank gets an equal share of
// the processors.
//
// Rank 0 shares this process's output. Lines of other ranks go to stderr, each with "rank R: "
// before it. Signals of kStopSignals are passed on to the ranks. If a rank fails, the ranks that
// still run `secondsToEnd` later are killed. If this process dies, the ranks get a SIGTERM.
//
// Returns the exit code of the first rank that failed by itself; if there is none, the exit code of
// a rank that failed because of another rank (ExitCode::RankFailed); else 0. A rank that a signal
// ended counts as RankFailed, and is reported on stderr.
Result<int> launchRanks(int ranks, const std::vector<std::string> &command,
                        double secondsToEnd = 15);

} // namespace lmc
