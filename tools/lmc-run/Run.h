// Runs a plan as the options of lmc-run request.
#pragma once

#include "ground/support/Result.h"
#include "runtime/comm/World.h"
#include "runtime/settings/RunOptions.h"

#include <cstdint>
#include <string>

namespace lmc {

// The options of a run, and the options for what lmc-run can do instead of training.
struct ProgramOptions : RunOptions {
  bool eval = false;
  std::string dumpLogits;
  int64_t bench = 0; // number of steps to time; 0: no bench
  // Files to which the results of all commands of one step are written, or with which they are
  // compared. `tolerance` 0: the default of CommandRecord.h.
  std::string recordCommands, compareCommands;
  double tolerance = 0;
  bool preflight = false; // only measures the links between ranks
  bool check = false;     // only looks for faults, and trains three steps elsewhere
  bool json = false;      // prints the result of a bench, preflight or check as JSON

  bool recordsCommands() const { return !recordCommands.empty() || !compareCommands.empty(); }
  bool trains() const {
    return !preflight && !eval && dumpLogits.empty() && bench == 0 && !recordsCommands();
  }
};

// Does what `options` request, with the other ranks that the launcher has started. Returns Success,
// Interrupted (stopped by a signal of kStopSignals, or because of the time limit), or SlowLink
// (check/Preflight.h).
Result<ExitCode> run(const ProgramOptions &options);

// Does the same in a given world, all of whose ranks must call it. Rank 0 writes to the options'
// `output` and `errors`, and every other rank R only to OUT/ranks/R.
Result<ExitCode> run(const ProgramOptions &options, World &world);

} // namespace lmc
