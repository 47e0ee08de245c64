// The training loop.
#pragma once

#include "runtime/loop/RunContext.h"
#include "runtime/loop/Saves.h"
#include "runtime/monitor/Metrics.h"
#include "runtime/step/RouterSums.h"
#include "runtime/text/TextGeneration.h"
#include "runtime/watch/Watch.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// Trains a started session from its current step to the end of its phase.
//
// The host enqueues the next step before it acts on the results of the previous step. So the
// device, a CPU or a GPU, need not wait for the host. Only work that needs the state after one
// step, such as a validation or a save, waits until the device has no other work.
//
// Before each step, the ranks tell each other whether one must stop because of a signal, a failure
// or the time limit (which rank 0 watches). So all ranks stop after the same step. Losses, norms
// and the watches' findings are equal on all ranks. Rank 0 writes the metrics.
//
// If a step's gradient norm is not finite, the device does not apply the step. The step and its
// samples are counted all the same.
class Trainer {
public:
  // `run` must outlive the trainer.
  Trainer(const RunContext &run, std::shared_ptr<DataSource> data);

  // Opens files and data. Must be called before train().
  Result<void> prepare();

  // Trains, saves and exports. Returns Interrupted if a signal or the time limit stopped the run
  // early. Error Diverged: a watch stopped the run, whose state (unless damaged) is in
  // OUT/checkpoints/STEP.diverged. Error UserError: no step fits in the time.
  Result<ExitCode> train();

  // After train(): the rollback that a spike requires; nullopt if none does.
  const std::optional<Rollback> &rollback() const { return goesBack; }
  // Returns why train() has returned Interrupted: "signal" or "time_limit".
  const char *interruption() const { return outOfTime ? "time_limit" : "signal"; }

private:
  // A step whose results were not read yet.
  struct EnqueuedStep {
    int64_t number = 0;
    double lr = 0;
    StepLimits limits;
    bool named = false;          // guard.skip_steps names the step
    double dataSeconds = 0;      // seconds that the host waited for the batch
    uint64_t validTargets = 0;   // number of targets with a loss, summed over all ranks
    const Mark *began = nullptr; // end of the previous step or, after idle time, `start`
    const Mark *ended = nullptr;
  };
  // The rows of this rank in the next step.
  struct NextBatch {
    BatchLoader::Batch batch; // batch.validTargets is a sum over all ranks, not of this rank only
    double seconds = 0;       // seconds that the host waited for the batch
  };
  struct Validation {
    const ValidationSettings *set = nullptr;
    std::unique_ptr<Evaluator> evaluator;
    TimeSpent spent;
  };

  Result<void> openMetrics();
  Result<void> openWatches();
  // Returns nullopt if a rank got a signal to stop, or if no time is left for the step.
  Result<std::optional<NextBatch>> nextBatch();
  Result<void> enqueue(const NextBatch &next);
  void writeTrace();
  // Waits for the oldest enqueued step and counts it as done. The caller must report() its record.
  Result<StepRecord> settle();
  // Calls settle() and report() for the oldest enqueued steps until only `count` are left.
  Result<void> drain(size_t count);
  // Calls settle() and report() for the enqueued steps whose results have arrived.
  Result<void> settleReady();
  Result<StepRecord> readStep(const EnqueuedStep &step);
  // Returns how much of each named source was read, and stores this for the next checkpoint.
  std::vector<SourceRecord> recordSources();
  // Returns true if validation, a save or other work that needs the state after `step` is due.
  bool hasWorkAfter(uint64_t step) const;
  // Reports the findings of watches, and records which actions they require.
  void take(const WatchFindings &found);
  // Returns true if a finding ends the loop.
  bool mustLeave() const { return stops || spike; }
  Error stopDiverged(const WatchFinding &finding);
  // Chooses a checkpoint before step `spike` to go back to. Error: none, or too many rollbacks.
  Result<Rollback> chooseRollback(uint64_t spike);
  Result<ExitCode> goBack();
  // Returns a clause about what the user can do after a divergence.
  std::string wayBack(const WatchFinding &finding) const;
  // Evaluates the validation sets that are due after the step.
  Result<void> validate(StepRecord &record);
  // Lets the model continue the prompts, if this is due.
  Result<void> generateText(StepRecord &record);
  // Reports that the time limit prevented validation `first` and the later ones in the list.
  void reportUnvalidated(const Validation *first);
  // Returns the estimated seconds of the validations, generations and exports that follow `step`.
  double secondsAfter(uint64_t step) const;
  // Reports that the run ends because of its time limit. Error: this start has trained no step.
  Result<void> leaveInTime();
  // Returns the estimated seconds of all future work other than steps.
  double pendingSeconds() const;
  void reportExpectedTime(const StepRecord &record);
  void report(StepRecord &record);
  Result<ExitCode> finish(bool interrupted);

  const RunContext &run;
  const uint64_t firstStep; // number of steps done before this start
  const std::shared_ptr<DataSource> data;
  const std::vector<SourceFacts> sources; // the sources of `data`
  std::unique_ptr<BatchLoader> batches;
  std::vector<Validation> validations;
  std::unique_ptr<TextGeneration> generation; // null: the job has no prompts
  TimeSpent generations;
  std::deque<EnqueuedStep> enqueued;
  uint64_t enqueuedStep;                   // number of the newest step that was enqueued
  std::vector<std::unique_ptr<Mark>> ends; // ends[n % size] is the end of step n
  std::unique_ptr<Mark> start; // start of the oldest enqueued step, if the device was idle
  std::optional<LineFile> metrics;
  Watches watches;
  const RouterSums routerSums;
  Saves saves;
  double stepSeconds = 0; // sum over this start's steps except the first, a warm-up
  bool gradientsDumped = false;
  bool dataFailed = false;           // true once a batch could not be read
  bool outOfTime = false;            // true once a step did not fit before the time limit
  std::optional<WatchFinding> stops; // the first finding that ends the run
  std::optional<uint64_t> spike;     // first step of a spike that makes the run go back
  std::optional<Rollback> goesBack;
};

} // namespace lmc
