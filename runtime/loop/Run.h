// Runs a plan: trains from checkpoint to checkpoint, or gives the weights to a program that
// measures them.
#pragma once

#include "ground/support/Signals.h"
#include "runtime/loop/Phases.h"
#include "runtime/monitor/Console.h"
#include "runtime/monitor/RunObserver.h"
#include "runtime/settings/RunOptions.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// Opens the plan that the options name, checks with all ranks that it is the same one, and divides
// `world` by its mesh.
Result<std::unique_ptr<PlanFile>> openPlan(const RunOptions &options, World &world);

// A run, seen from one of the plan's ranks. All ranks call the functions below together.
struct Run {
  const RunOptions &options; // rank 0 writes to its `output` and `errors`, others to OUT/ranks/R
  const StopSignals &stop;
  const PlanFile &plan;
  World &world; // divided
  RunObserverMaker makeObserver = {}; // empty: there is none
};

// Trains in the folder of the options, and records there how it ended. Returns Success, Diverged,
// or Interrupted after a signal of kStopSignals or before the time limit.
Result<ExitCode> train(const Run &run);

// The use that a program makes of a start's weights instead of training. Nothing is written to the
// run's folder.
struct Measurement {
  // Is called with the session when the weights are loaded.
  std::function<Result<ExitCode>(Session &, Console &)> use;
  // Makes what runs the functions of the plan in place of the device; empty: nothing does.
  ObserverMaker observer = {};
  // True if `use` runs steps: the session belongs to the phase that trains the next step. Otherwise
  // it belongs to the phase that trained the last one.
  bool runsSteps = false;
};
Result<ExitCode> measure(const Run &run, const Measurement &measurement);

// How a start of the run would begin.
struct StartFacts {
  std::optional<std::string> checkpoint; // path
  std::string init;                      // initial weights; "": none
  std::vector<std::string> overrides;    // all changes by --set, with those of earlier starts
  uint64_t step = 0, totalSteps = 0;     // number of finished steps, and number of the last step
  std::vector<RunPhase> phases;
  std::vector<std::string> job; // lines about the data and the job (jobFacts)
};

// Prepares a start up to where weights are loaded, and changes nothing in the run's folder.
// Warnings go to `console`. Error: why the run cannot start.
Result<StartFacts> lookAtStart(const Run &run, Console &console);

} // namespace lmc
