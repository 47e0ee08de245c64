// lmc-run --check: looks for all that can stop a run, or make it worthless, before its first step.
#pragma once

#include "runtime/monitor/Console.h"
#include "runtime/train/Phases.h"
#include "runtime/train/Run.h"
#include "runtime/support/Signals.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// How a start of the run would begin.
struct StartFacts {
  std::optional<std::string> checkpoint; // path
  std::string init;                      // initial weights; "": none
  std::vector<std::string> overrides;    // all changes of --set, with those of earlier starts
  uint64_t step = 0, totalSteps = 0;     // steps that are done, and the number of the last one
  std::vector<RunPhase> phases;
  std::vector<std::string> job; // what the run reads and trains (jobFacts)
};

// What a check needs of a run. All ranks call both together.
struct RunParts {
  // Prepares a start in OUT, up to where weights are loaded, and changes nothing. Warnings go to
  // the console. Error: why the run cannot start.
  std::function<Result<StartFacts>(Console &)> look;
  // Trains as the options say.
  std::function<Result<ExitCode>(const RunOptions &)> train;
};

// Checks the folder, the disk, the data, the settings, the memory and the links between ranks. If
// none of them has an error, trains three steps from where the run would start, in a scratch folder
// on the file system of OUT: in one go, and again with a save and a resume before the third.
// Losses, norms and the checksums of all state must be equal. Says how long the job will take.
// Prints a table or, with options.json, an object. Nothing in OUT changes, and the scratch folder
// is removed.
//
// All ranks of `world` call it after World::divide(). Returns Success, UserError, DoesNotFit if
// only memory or disk are too small, or Interrupted after a signal. An Error: a rank was lost.
Result<ExitCode> check(const PlanFile &plan, World &world, const RunOptions &options,
                       const StopSignals &stop, const RunParts &parts);

} // namespace lmc
