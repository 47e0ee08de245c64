// When checkpoints and exports of a run are made, and what is told of them. SaveWriter writes them.
#pragma once

#include "runtime/loop/RunContext.h"
#include "runtime/loop/SaveWriter.h"
#include "runtime/monitor/Metrics.h"
#include "runtime/monitor/Updates.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace lmc {

// All ranks call the same functions in the same order.
//
// A permanent checkpoint (checkpoint.keep_every) or an export that is due while another is being
// written, or whose save fails, is made by a later step, which then stands for it.
class Saves {
public:
  // `enqueuedStep` is the number of the newest step that was enqueued. The arguments must outlive
  // this object.
  Saves(const RunContext &run, Watches &watches, std::optional<MetricsWriter> &metrics,
        const uint64_t &enqueuedStep);

  // Allocates what saves in the background need, and opens updates.jsonl.
  Result<void> prepare();
  // Does what a start that was killed in an export has left: removes its part, and writes the
  // export of the checkpoint that this start goes on from, if that is due and not there.
  Result<void> completeExports();

  // The state of the step is worth a checkpoint (checkpoint.save_best).
  void want(uint64_t step) { bestStep = step; }
  // Returns true if a checkpoint or an export follows the step.
  bool isDueAfter(uint64_t step) const { return savesAfter(step) || exportsAfter(step); }
  // Saves and exports what is due after the newest step, whose record is given, in the background
  // if that is possible. Error: the device failed.
  Result<void> saveDue(const StepRecord &record);
  // Saves and exports at once, after what is being written in the background. Error: the device
  // failed.
  Result<void> saveNow(bool checkpoint, const std::string &exportFolder);
  // Saves the newest step, unless it is saved already.
  Result<void> saveNewest();
  // The same at the end of a run or phase, with the export that is late.
  Result<void> saveLast(bool hasTrained);

  // Must be called now and then, so that writing begins when the copy of the state is complete.
  Result<void> poll() { return writer.poll(); }
  // Returns true if what this rank writes in the background is complete, so that finish() returns
  // at once when all ranks are so far.
  bool isComplete() const { return writer.isBusy() && writer.isWritten(); }
  // Waits for what is being written in the background, and reports what became of it. Error: the
  // device failed.
  Result<void> finish();
  // Warns of a checkpoint that is being written for longer than is usual.
  void watch();

  // Returns the estimated seconds until what is written in the background is complete; of an export
  // after `step`, which is that of a save before the first one; and of all saves and exports that
  // are still to come.
  double writingSeconds() const;
  double exportSecondsAfter(uint64_t step) const;
  double pendingSeconds() const;
  // Returns the seconds that the loop has waited since this was called last.
  double takeWaited() { return std::exchange(waited, 0); }

  // Returns the error of the latest checkpoint or export, if it failed.
  const std::optional<Error> &saveError() const { return errorOfSave; }
  const std::optional<Error> &exportError() const { return errorOfExport; }

private:
  bool savesAfter(uint64_t step) const;
  bool exportsAfter(uint64_t step) const;
  // Returns true if the checkpoint of the step is permanent.
  bool isPermanent(uint64_t step) const;
  // Returns true if a save that has failed is tried again after the step.
  bool isRetry(uint64_t step) const { return retryStep > 0 && step >= retryStep; }
  std::string exportFolder(uint64_t step) const;
  KeepRules keepRules() const;
  SaveJob jobOf(bool checkpoint, std::string exportFolder);
  Result<void> openUpdates();
  // Notes what is due after step `done` and cannot be written now. What was due before it, and is
  // late still, is lost.
  void postpone(uint64_t done, bool saves, bool exports);
  // Reports that a checkpoint or export, if it is `late` still, will not be made.
  void reportLost(const std::optional<uint64_t> &late, const char *what, const char *key);
  // Reports what became of a save, for which the loop has waited `seconds`.
  void takeOutcome(const SaveOutcome &outcome, double seconds);
  void takeCheckpoint(const SaveOutcome &outcome, double seconds, double copied);
  void takeExport(uint64_t step, const SaveOutcome::Part &part, double seconds);
  void takeUpdates(const StepUpdates &step);
  void reportFailed(uint64_t step, const Error &error);
  struct SavedBefore {
    uint64_t step = 0;
    double seconds = 0; // since it was written
  };
  // Returns the newest checkpoint in the run's folder; nullopt if there is none, or if the folder
  // cannot be read.
  std::optional<SavedBefore> newestCheckpoint() const;

  const RunContext &run;
  Watches &watches;
  std::optional<MetricsWriter> &metrics;
  const uint64_t &enqueuedStep;
  const TrainSettings &settings;
  SaveWriter writer;
  std::optional<UpdatesWriter> updates; // absent if nothing is written in the background
  bool updatesHeldBack = false;         // the latest record could not be written

  TimeSpent saves, exports;
  double waited = 0;        // seconds that the loop waited since takeWaited()
  double copySeconds = 0;   // part of them: the copy for the job that is written in the background
  double exportSeconds = 0; // that the latest export took
  std::chrono::steady_clock::time_point began; // of the job in the background

  bool isLate = false; // a checkpoint was due while another was being written
  // The steps of a permanent checkpoint and of an export that are still to be made.
  std::optional<uint64_t> latePermanent, lateExport;
  // The steps whose permanent checkpoint and export the latest ones are or stand for.
  std::optional<uint64_t> writesPermanent, writesExport;
  uint64_t retryStep = 0;  // a save that has failed is tried again from this step on; 0: none has
  int64_t failedSaves = 0; // in a row
  uint64_t bestStep = 0;   // the step whose validation is the best; 0: none
  uint64_t savedStep;      // step of the newest checkpoint that is on the disk
  // The newest checkpoint that this rank knows of, for a time in which its folder cannot be read.
  struct KnownSave {
    uint64_t step = 0;
    std::chrono::steady_clock::time_point written;
  };
  std::optional<KnownSave> knownSave;
  std::optional<Error> errorOfSave, errorOfExport;
};

// Returns the key of a set's latest loss in the extra state of a checkpoint.
std::string lossKey(const ValidationSettings &set);

// Returns the seconds since `start`.
double secondsSince(std::chrono::steady_clock::time_point start);

} // namespace lmc
