// Runs a plan as the options of lmc-run request.
#pragma once

#include "ground/support/Result.h"
#include "runtime/comm/World.h"
#include "runtime/settings/RunOptions.h"

#include <cstdint>
#include <string>

namespace lmc {

// The options of lmc-run: those of a training run, and those of other work, such as --eval.
struct ProgramOptions : RunOptions {
  bool eval = false;
  std::string dumpLogits;
  int64_t bench = 0; // number of steps to time; 0: no bench
  // The files of --record-commands and --compare-commands. A `tolerance` of 0 means the default.
  std::string recordCommands, compareCommands;
  double tolerance = 0;
  bool preflight = false; // only measures the links between ranks
  bool check = false;     // only looks for faults; trains three steps in another folder
  bool json = false;      // prints the result of a bench, preflight or check as JSON

  bool recordsCommands() const { return !recordCommands.empty() || !compareCommands.empty(); }
  bool trains() const {
    return !preflight && !eval && dumpLogits.empty() && bench == 0 && !recordsCommands();
  }
};

// Does what `options` request, together with the other ranks. Returns the program's exit code.
Result<ExitCode> run(const ProgramOptions &options);

// All ranks of `world` must call run(). Only rank 0 writes to the options' `output` and `errors`.
Result<ExitCode> run(const ProgramOptions &options, World &world);

} // namespace lmc
