// What lmc-run does with a plan.
#pragma once

#include "ground/support/Result.h"
#include "runtime/comm/World.h"
#include "runtime/settings/RunOptions.h"

#include <cstdint>
#include <string>

namespace lmc {

// The options of a run, and those of what lmc-run does in the place of training.
struct ProgramOptions : RunOptions {
  bool eval = false;
  std::string dumpLogits;
  int64_t bench = 0; // steps to time; 0: no bench
  // What the commands of one step compute is written to the one file, or compared with the other;
  // `tolerance` 0: that of CommandRecord.h.
  std::string recordCommands, compareCommands;
  double tolerance = 0;
  bool preflight = false; // only measure the links between ranks
  bool check = false;     // look for what can go wrong, train three steps elsewhere, and end
  bool json = false;      // the result of a bench, a preflight or a check is printed as JSON

  // True if the commands of one step are recorded or compared.
  bool recordsCommands() const { return !recordCommands.empty() || !compareCommands.empty(); }
  // True if the run is trained and kept.
  bool trains() const {
    return !preflight && !eval && dumpLogits.empty() && bench == 0 && !recordsCommands();
  }
};

// Trains, evaluates, measures, checks or dumps, as `options` says, with the other ranks that the
// launcher has started. Returns Success, Interrupted after a signal of kStopSignals or before the
// time limit, or SlowLink (check/Preflight.h).
Result<ExitCode> run(const ProgramOptions &options);

// Does the same as one of the plan's ranks. All ranks of `world` call it. Rank 0 writes to the
// options' `output` and `errors`, and every other rank R only to OUT/ranks/R.
Result<ExitCode> run(const ProgramOptions &options, World &world);

} // namespace lmc
