// The training loop.
#pragma once

#include "ground/support/Signals.h"
#include "runtime/comm/SlowRank.h"
#include "runtime/folder/RunDirectory.h"
#include "runtime/loop/Phases.h"
#include "runtime/loop/SaveWriter.h"
#include "runtime/monitor/Console.h"
#include "runtime/monitor/Guard.h"
#include "runtime/monitor/Metrics.h"
#include "runtime/monitor/Monitors.h"
#include "runtime/monitor/SlowSave.h"
#include "runtime/monitor/UpdateWatch.h"
#include "runtime/monitor/Updates.h"
#include "runtime/settings/TimeLimit.h"
#include "runtime/step/RouterSums.h"
#include "runtime/step/Session.h"
#include "runtime/text/TextGeneration.h"
#include "runtime/watch/CompareWeights.h"
#include "runtime/watch/DiskSpace.h"
#include "runtime/watch/SlowSteps.h"

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>

namespace lmc {

// Trains a started session from its current step to the end of its phase.
//
// Each step reads the next GBS rows of the training data, and a run goes on at the next token that
// it has not read. The loss is divided by the number of targets of the whole step that have a loss,
// which is known before the first micro-step.
//
// The host enqueues a step and then the next one, and never waits between micro-steps. The results
// of a step are read when they arrive. What they decide (the run has diverged) is done after the
// next step was enqueued, on every device alike. The loop empties the device's queue only for work
// that needs the state of one step: validation, a save, an export, the end. With
// checkpoint.background, saves and exports then copy the state to the host's memory, and are
// written behind the next steps.
//
// All ranks train together. Before each step they tell each other how many targets have a loss, and
// whether one of them got a signal or has no batch, and rank 0 whether another step fits before the
// run's time limit (TimeLimit.h), so that all stop behind the same step. Their
// losses and norms are equal, and so are the verdicts of their guards. Rank 0 writes the metrics.
//
// The device does not apply a step whose gradient norm is not finite, but the step and its samples
// count. A guard (runtime/monitor/Guard.h) judges all steps; its state is part of each checkpoint.
class Trainer {
public:
  // `monitors` is null on all ranks but the first.
  Trainer(Session &session, const RunOptions &options, RunDirectory &directory, Console &console,
          RunLog &log, Monitors *monitors, const StopSignals &stop, TimeBudget &time,
          std::shared_ptr<DataSource> data, RunPhase phase, uint64_t totalSteps);

  // Opens the metrics file and the data of the validation sets. Must be called before train().
  Result<void> prepare();

  // Trains, saves and exports. Returns Interrupted if a signal or the time limit stopped the run
  // early. Error Diverged: the guard stopped the run, and its state is kept in
  // OUT/checkpoints/STEP.diverged. Error UserError: the time limit leaves no time for one step.
  Result<ExitCode> train();

  // After train(): where the run goes back to because of a spike, if it does. Nothing was saved of
  // the steps since then.
  const std::optional<Rollback> &rollback() const { return goesBack; }
  // Returns why train() has returned Interrupted: "signal" or "time_limit".
  const char *interruption() const { return outOfTime ? "time_limit" : "signal"; }

private:
  // A step that the device has not completed, or whose results were not read.
  struct EnqueuedStep {
    int64_t number = 0;
    double lr = 0;
    StepLimits limits;
    bool named = false;         // guard.skip_steps names the step
    double dataSeconds = 0;     // that the host waited for the batch
    uint64_t validTargets = 0;  // of all ranks
    const Mark *began = nullptr; // the end of the step before, or the start if the device was idle
    const Mark *ended = nullptr;
  };

  Result<void> openMetrics();
  // Opens updates.jsonl if steps are to be added to it, or lines to be moved out of it.
  Result<void> openUpdates();
  // The rows of this rank in the next step.
  struct NextBatch {
    BatchLoader::Batch batch; // validTargets are those of all ranks
    double seconds = 0;       // that the host waited for it
  };
  // Returns nullopt if a signal asks some rank to stop, or if the step does not fit before the time
  // limit.
  Result<std::optional<NextBatch>> nextBatch();
  // Enqueues the next step.
  Result<void> enqueue(const NextBatch &next);
  void writeTrace();
  // Returns the limits of the next step, which are below every loss and norm if guard.skip_steps
  // names it.
  StepLimits nextLimits(bool &named) const;
  // Waits for the oldest enqueued step and shows it to the guards. The caller reports it.
  Result<StepRecord> settle();
  // Settles and reports enqueued steps until `count` are left.
  Result<void> drain(size_t count);
  // Settles and reports the enqueued steps whose results have arrived.
  Result<void> settleReady();
  Result<StepRecord> readStep(const EnqueuedStep &step);
  // Returns what was read of each named source up to the position in the data, and notes it for the
  // next checkpoint.
  std::vector<SourceRecord> recordSources();
  // Returns true if work that needs the state of `step` follows it.
  bool hasWorkAfter(uint64_t step) const;
  // Shows a step to the guard and prints its warnings. Returns the divergence that must stop the
  // run, if there is one.
  std::optional<Guard::Divergence> watchForDivergence(const StepRecord &record);
  void watchForDeadExperts(const StepRecord &record);
  Error stopDiverged(const Guard::Divergence &divergence);
  // Decides where to go back to because of a spike that began at `spike`. Error: the run has no
  // checkpoint from before it, or went back too often.
  Result<Rollback> chooseRollback(uint64_t spike);
  // Goes back because of the spike.
  Result<ExitCode> goBack();
  // Returns what to do after a divergence, as a clause.
  std::string wayBack(const Guard::Divergence &divergence) const;
  // Evaluates the validation sets that are due after the step.
  Result<void> validate(StepRecord &record);
  // Returns true for the set that checkpoint.keep_best names.
  bool isKeptBest(const ValidationSettings &set) const;
  // Warns of a validation loss that has risen, and notes the best one for checkpoint.save_best.
  void watchValidation(const ValidationSettings &set, int64_t step, double loss);
  // Lets the model continue the prompts, if that is due after the step. Its time counts as
  // validation.
  Result<void> generateText(StepRecord &record);
  // Compares the weights that exist twice, if that is due. Error Diverged: they differ.
  Result<void> compareWeights();
  // Returns the newest step after which all weights that exist twice were equal; 0: not known.
  uint64_t equalStep() const;
  // Says that the time limit has cut off the validation of the set `first`, and with it those of
  // the sets behind it.
  void sayUnvalidated(size_t first);
  // Returns the estimated seconds of validations, generations and exports after `step`. Before the
  // first export, that is the time of a save; before the first validation of a set, that of its
  // batches at the longest step.
  double secondsAfter(uint64_t step) const;
  // Returns the estimated seconds until what is written in the background is complete.
  double writingSeconds() const;
  // Says that the run leaves for its time limit. Error: it has not done one step.
  Result<void> leaveInTime();
  // Returns the estimated seconds of the work beside the steps that is still to come.
  double pendingSeconds() const;
  void sayExpectedTime(const StepRecord &record);
  void report(StepRecord &record);
  // Warns of ranks that are busy longer than the others.
  void watchForSlowRanks(int64_t step);
  // Warns of a checkpoint that is being written for longer than is usual.
  void watchForSlowSave();
  void tellSlowSave(uint64_t step, const char *how, const SlowSaveWatch::Found &slow);
  // Returns true if a checkpoint, or an export, is due after the step.
  bool savesAfter(uint64_t step) const;
  bool exportsAfter(uint64_t step) const;
  KeepRules keepRules() const;
  SaveJob jobOf(bool checkpoint, std::string exportFolder);
  // Saves and exports what is due after the newest step, whose record is given, in the background
  // if that is possible. Error: the device failed.
  Result<void> saveDue(const StepRecord &record);
  // Saves and exports at once, after what is being written in the background. Error: the device
  // failed.
  Result<void> saveNow(bool checkpoint, const std::string &exportFolder);
  // Does what a start that was killed in an export has left: removes its part, and writes the export
  // of the checkpoint that this start goes on from, if that export is due and not there.
  Result<void> completeExports();
  // Waits for what is being written in the background, and reports what became of it. Error: the
  // device failed.
  Result<void> finishSave();
  struct SavedBefore {
    uint64_t step = 0;
    double seconds = 0; // since it was written
  };
  // Returns the newest checkpoint in the run's folder; nullopt if there is none, or if the folder
  // cannot be read.
  std::optional<SavedBefore> newestCheckpoint() const;
  void tellFailedSave(uint64_t step, const Error &error);
  std::string exportFolder(uint64_t step) const;
  // Returns true if the checkpoint of the step is permanent (checkpoint.keep_every).
  bool isPermanent(uint64_t step) const;
  // Tells the user that a checkpoint or export, if it is `late` still, will not be made.
  void tellLost(const std::optional<uint64_t> &late, const char *what, const char *key);
  // Notes what is due after step `done` and cannot be written now. What was due before it, and
  // is late still, is lost.
  void postpone(uint64_t done, bool saves, bool exports);
  // Returns true if a save that has failed is tried again after the step.
  bool isRetry(uint64_t step) const;
  // Reports what became of a save. Sets `saveError` if it failed, and clears it if it succeeded.
  void takeOutcome(const SaveOutcome &outcome, double waited);
  // Writes how far a step has moved each tensor, and warns of those that are out of range.
  void takeUpdates(const StepUpdates &step);
  Result<ExitCode> finish(bool interrupted);

  Session &session;
  const RunOptions &options;
  RunDirectory &directory;
  Console &console;
  RunLog &log;
  Monitors *const monitors;
  const StopSignals &stop;
  TimeBudget &time;
  Communicator &ranks;
  Progress &progress;
  const RunPhase phase;
  const uint64_t totalSteps; // of the run
  const uint64_t firstStep; // steps that were done before this run

  const std::shared_ptr<DataSource> data;
  const std::vector<SourceFacts> sources; // of the data
  std::unique_ptr<BatchLoader> batches;
  std::vector<std::unique_ptr<Evaluator>> evaluators; // of settings.validations
  std::unique_ptr<TextGeneration> generation;         // null: the job has no prompts
  std::unique_ptr<WeightComparison> comparison;       // null: no weight exists twice
  std::deque<EnqueuedStep> enqueued;
  uint64_t enqueuedStep;                    // number of the newest step that was enqueued
  std::vector<std::unique_ptr<Mark>> ends;  // ends[n % size] is the end of step n
  std::unique_ptr<Mark> start;              // of the oldest enqueued step, if the device was idle
  std::optional<uint64_t> spike; // the first step of a spike that the run goes back because of
  std::optional<Rollback> goesBack;
  std::optional<Guard::Divergence> verdict; // the first divergence that a settled step showed
  std::optional<MetricsWriter> metrics;
  std::optional<UpdatesWriter> updates; // absent if nothing is written in the background
  Guard guard;
  UpdateWatch updateWatch;
  const RouterSums routerSums;
  DeadExpertWatch deadExperts;
  SlowRankWatch slowRanks;
  SlowSteps slowSteps;
  SlowSaveWatch slowSaves;
  SpaceWatch space;
  bool metricsHeldBack = false, updatesHeldBack = false; // the latest record could not be written
  // Seconds that were spent on each kind of work beside the steps, and how often it was done.
  struct Spent {
    double seconds = 0;
    int64_t times = 0;
    void add(double more) { seconds += more, ++times; }
    double mean() const { return times == 0 ? 0 : seconds / static_cast<double>(times); }
  };
  std::vector<Spent> validations; // of each of the evaluators
  Spent saves, exports, generations;
  double saveSeconds = 0; // that the loop waited for checkpoints and exports since the latest step
  double copySeconds = 0; // part of them: the copy for the job that is written in the background
  double stepSeconds = 0; // of the steps of this start after the first, which also warms up
  bool gradientsDumped = false;
  bool dataFailed = false;        // true once a batch could not be read
  SaveWriter writer;
  std::chrono::steady_clock::time_point writeBegan; // of the job in the background
  double exportSeconds = 0;                         // that the latest export took
  bool saveIsLate = false; // a checkpoint was due while another was being written
  // The steps of a permanent checkpoint and of an export that are still to be made, by a later
  // step: another was being written when they were due, or the save has failed.
  std::optional<uint64_t> latePermanent, lateExport;
  // The steps whose permanent checkpoint and export the latest ones are or stand for.
  std::optional<uint64_t> writesPermanent, writesExport;
  uint64_t retryStep = 0;  // a save that has failed is tried again from this step on; 0: none has
  int64_t failedSaves = 0; // in a row
  bool outOfTime = false;         // true once a step did not fit before the time limit
  uint64_t bestStep = 0; // the step whose validation is the best, for checkpoint.save_best; 0: none
  uint64_t savedStep;             // step of the newest checkpoint that is on the disk
  // The newest checkpoint that this rank knows of, for a time in which its folder cannot be read.
  struct KnownSave {
    uint64_t step = 0;
    std::chrono::steady_clock::time_point written;
  };
  std::optional<KnownSave> knownSave;
  std::optional<Error> saveError; // error of the latest save, if it failed
  std::optional<Error> exportError;
};

} // namespace lmc
