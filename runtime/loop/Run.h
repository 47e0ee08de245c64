// A run of a plan: it trains from one checkpoint to the next, or hands its weights to a program that
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

// A run as one of the plan's ranks has it. All ranks call the functions below together.
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

// What a program does with the weights of a start in the place of training. Nothing is written to
// the run's folder.
struct Measurement {
  // Called with the session, whose weights are there.
  std::function<Result<ExitCode>(Session &, Console &)> use;
  // Sets who runs the functions of the plan in the place of the device; empty: nobody.
  ObserverMaker observer = {};
  // True: it runs steps, and the session is of the phase that trains the next one. False: the
  // session is of the phase that trained the last one.
  bool runsSteps = false;
};
Result<ExitCode> measure(const Run &run, const Measurement &measurement);

// How a start of the run would begin.
struct StartFacts {
  std::optional<std::string> checkpoint; // path
  std::string init;                      // initial weights; "": none
  std::vector<std::string> overrides;    // all changes of --set, with those of earlier starts
  uint64_t step = 0, totalSteps = 0;     // steps that are done, and the number of the last one
  std::vector<RunPhase> phases;
  std::vector<std::string> job; // what the run reads and trains (jobFacts)
};

// Prepares a start up to where weights are loaded, and changes nothing in the run's folder.
// Warnings go to `console`. Error: why the run cannot start.
Result<StartFacts> lookAtStart(const Run &run, Console &console);

} // namespace lmc
