// The training loop.
#pragma once

#include "runtime/monitor/Console.h"
#include "runtime/monitor/Metrics.h"
#include "runtime/train/RunDirectory.h"
#include "runtime/train/Session.h"
#include "runtime/train/StepBatches.h"
#include "runtime/train/StopSignals.h"

#include <memory>
#include <optional>
#include <string>

namespace lmc {

// Takes a started session from the step it is at to a total number of steps.
//
// Step s (from 1) reads samples [s - 1, s) * GBS where the run began at sample 0,
// and in general those from progress.samples on. It divides the loss by the
// valid targets of the whole step, which is known before its first micro-step.
// The host waits for the device once a step, to read the scalars.
//
// A step whose gradient norm is not finite is skipped on the device; it still
// counts as a step, and its samples as used. Ten such steps in a row end the run.
class Trainer {
public:
  Trainer(Session &session, const RunOptions &options, RunDirectory &directory, Console &console,
          const StopSignals &stop, std::unique_ptr<DataSource> data, int64_t totalSteps);

  // Opens the metrics and the validation data; to be called before train().
  Result<void> prepare();

  // Runs, saves and exports. Interrupted when a signal ended it early.
  Result<ExitCode> train();

private:
  Result<StepRecord> step(int64_t number);
  Result<void> microSteps(const BatchLoader::Batch &batch, int64_t number);
  Result<void> optimizerStep(int64_t number, double lr);
  Result<StepRecord> readStep(int64_t number, double lr);
  Result<void> watchForNonFinite(const StepRecord &record);
  Result<void> validate(StepRecord &record);
  void report(const StepRecord &record);
  // Keeps the error of a failed save, and whether the last one worked.
  void save();
  void exportTo(const std::string &folder);
  Result<ExitCode> finish(bool interrupted);

  Session &session;
  const RunOptions &options;
  RunDirectory &directory;
  Console &console;
  const StopSignals &stop;
  const uint64_t totalSteps;
  const uint64_t firstStep; // steps done before this run

  const std::unique_ptr<DataSource> data;
  std::unique_ptr<StepBatches> batches;
  std::unique_ptr<Evaluator> evaluator;
  std::optional<MetricsWriter> metrics;
  bool metricsHeldBack = false;
  bool gradientsDumped = false;
  int64_t nonFiniteSteps = 0;     // in a row
  uint64_t savedStep;             // of the newest durable checkpoint
  std::optional<Error> saveError; // of the latest save, if it failed
  std::optional<Error> exportError;
};

} // namespace lmc
