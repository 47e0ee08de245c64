// Runs a plan: trains, or loads the weights and gives them to a program that measures them.
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

// Opens the plan that the options name, checks that all ranks have the same plan, and divides the
// ranks of `world` into the groups of the plan's mesh.
Result<std::unique_ptr<PlanFile>> openPlan(const RunOptions &options, World &world);

// What one rank knows of a run. All ranks call the functions below together.
struct Run {
  const RunOptions &options; // rank 0 prints to options.output and .errors, others to OUT/ranks/R
  const StopSignals &stop;
  const PlanFile &plan;
  World &world;                       // already divided into the groups of the plan's mesh
  RunObserverMaker makeObserver = {}; // may be empty
};

// Trains in the folder of the options, and records there how it ended. Returns Success, or
// Interrupted if a signal or the time limit ended the training.
Result<ExitCode> train(const Run &run);

// What a program does with the loaded weights instead of training.
struct Measurement {
  // Is called once the weights are loaded.
  std::function<Result<ExitCode>(Session &, Console &)> use;
  // Makes the object that runs the plan's functions. If this is empty, the device runs them.
  ObserverMaker observer = {};
  // True if `use` runs steps. Then the session is of the phase that trains the next step. Otherwise
  // it is of the phase that trained the last step.
  bool runsSteps = false;
};
Result<ExitCode> measure(const Run &run, const Measurement &measurement);

// What a start of the run would do before its first step.
struct StartFacts {
  std::optional<std::string> checkpoint; // path
  std::string init;                      // initial weights; "": none
  std::vector<std::string> overrides;    // all --set changes, of earlier starts too
  uint64_t step = 0, totalSteps = 0;     // number of finished steps; number of the last step
  std::vector<RunPhase> phases;
  std::vector<std::string> job; // lines about the data and the job (jobFacts)
};

// Prepares a start, without loading weights or changing the run's folder.
Result<StartFacts> lookAtStart(const Run &run, Console &console);

} // namespace lmc
