// lmc-run --nproc: starts this program once per rank. lmc-run --restarts: starts it again.
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
// Rank 0 shares this process's output. Lines of other ranks go to stderr, with "rank R: " before
// them. Ranks get the signals of kStopSignals. If a rank fails, the others are killed after
// `secondsToEnd`. If this process dies, the ranks get a SIGTERM.
//
// Returns the exit code of the first rank that failed by itself; else that of a rank that failed
// because of another one (RankFailed); else 0. A rank that a signal ended counts as RankFailed.
Result<int> launchRanks(int ranks, const std::vector<std::string> &command,
                        double secondsToEnd = 15);

// Runs this command line, without its --nproc, as each of `ranks` ranks on this machine, and
// returns the exit code. Error: this process is already one of several ranks.
Result<int> launchHere(int ranks, int argc, char **argv, const LaunchOptions &options);

// Runs this command line, without its --restarts, by supervise(). Returns the exit code. The time
// limit is for all starts together.
Result<int> superviseHere(int64_t restarts, int argc, char **argv, const RunOptions &options);

} // namespace lmc
