// Decides when checkpoints and exports of a run are made, and reports them. SaveWriter writes them.
#pragma once

#include "runtime/loop/RunContext.h"
#include "runtime/loop/SaveWriter.h"
#include "runtime/monitor/Metrics.h"
#include "runtime/monitor/files/LineFile.h"

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace lmc {

// All ranks call the same functions in the same order.
//
// A permanent checkpoint (checkpoint.keep_every) or an export is made at a later step if it failed,
// or if another save was being written when it was due.
class Saves {
public:
  // `enqueuedStep` is the newest step that was enqueued. The arguments must outlive this object.
  Saves(const RunContext &run, Watches &watches, std::optional<LineFile> &metrics,
        const uint64_t &enqueuedStep);

  // Allocates the memory that saves in the background need, and opens updates.jsonl.
  Result<void> prepare();
  // Removes the incomplete export of a killed process. If the run starts from a checkpoint for
  // which an export is due and missing, writes it.
  Result<void> completeExports();

  // Requests that the state after `step` is saved (checkpoint.save_best).
  void want(uint64_t step) { bestStep = step; }
  // Returns true if a checkpoint or an export follows the step.
  bool isDueAfter(uint64_t step) const { return savesAfter(step) || exportsAfter(step); }
  // Makes the save and the export that are due, in the background if possible. Error: the device
  // failed.
  Result<void> saveDue(const StepRecord &record);
  // Waits for the background job, then saves and exports at once. Error: the device failed.
  Result<void> saveNow(bool checkpoint, const std::string &exportFolder);
  // Saves the state after the newest step, unless that state is already saved.
  Result<void> saveNewest();
  // Saves the newest step at the end of a run or phase, and makes an export that is still missing.
  Result<void> saveLast(bool hasTrained);

  // As SaveWriter::poll().
  Result<void> poll() { return writer.poll(); }
  // Returns true if the background job of this rank is complete.
  bool isComplete() const { return writer.isBusy() && writer.isWritten(); }
  // Waits for the background job and reports its result. Error: the device failed.
  Result<void> finish();
  // Warns of a checkpoint whose writing takes longer than usual.
  void watch();

  // Return the estimated seconds of the rest of the background job, of an export that is due after
  // `step`, and of all future saves and exports.
  double writingSeconds() const;
  double exportSecondsAfter(uint64_t step) const;
  double pendingSeconds() const;
  // Returns the seconds that the loop has waited since the last call.
  double takeWaited() { return std::exchange(waited, 0); }

  // Return the error of the latest checkpoint or of the latest export; nullopt if it succeeded.
  const std::optional<Error> &saveError() const { return errorOfSave; }
  const std::optional<Error> &exportError() const { return errorOfExport; }

private:
  bool savesAfter(uint64_t step) const;
  bool exportsAfter(uint64_t step) const;
  // Returns true if the checkpoint of the step is permanent.
  bool isPermanent(uint64_t step) const;
  // Returns true if a failed save is tried again after the step.
  bool isRetry(uint64_t step) const { return retryStep > 0 && step >= retryStep; }
  std::string exportFolder(uint64_t step) const;
  KeepRules keepRules() const;
  SaveJob jobOf(bool checkpoint, std::string exportFolder);
  Result<void> openUpdates();
  // Remembers saves due after step `done` that cannot be written now, and forgets earlier ones.
  void postpone(uint64_t done, bool saves, bool exports);
  // Reports that the checkpoint or export of step `late` will never be made; nullopt: no report.
  void reportLost(const std::optional<uint64_t> &late, const char *what, const char *key);
  // `seconds` is the time that the training loop has waited for the save.
  void takeOutcome(const SaveOutcome &outcome, double seconds);
  void takeCheckpoint(const SaveOutcome &outcome, double seconds, double copied);
  void takeExport(uint64_t step, const SaveOutcome::Part &part, double seconds);
  void takeUpdates(const StepUpdates &step);
  void reportFailed(uint64_t step, const Error &error);
  struct KnownSave {
    uint64_t step = 0;
    std::chrono::steady_clock::time_point written;
  };
  // Returns the newest checkpoint in the run's folder; nullopt if none can be read.
  std::optional<KnownSave> newestCheckpoint() const;

  const RunContext &run;
  Watches &watches;
  std::optional<LineFile> &metrics;
  const uint64_t &enqueuedStep;
  const TrainSettings &settings;
  SaveWriter writer;
  std::optional<LineFile> updates; // absent if no save is made in the background

  TimeSpent saves, exports;
  double waited = 0;        // seconds that the loop has waited since takeWaited()
  double copySeconds = 0;   // part of `waited`: time to copy the state for the background job
  double exportSeconds = 0; // seconds of the latest export
  std::chrono::steady_clock::time_point began; // begin of the background job

  bool isLate = false; // true if a save was due while another was written
  // The steps for which a permanent checkpoint and an export must still be made.
  std::optional<uint64_t> latePermanent, lateExport;
  // The steps for which the latest save writes a permanent checkpoint and an export; may be absent.
  std::optional<uint64_t> writesPermanent, writesExport;
  uint64_t retryStep = 0;  // step from which a failed save is tried again; 0: none failed
  int64_t failedSaves = 0; // number of failed saves in a row
  uint64_t bestStep = 0;   // step with the best validation; 0: none
  uint64_t savedStep;      // step of the newest checkpoint on the disk
  // The newest checkpoint as far as this rank knows. It is used while the folder cannot be read.
  std::optional<KnownSave> knownSave;
  std::optional<Error> errorOfSave, errorOfExport;
};

// Returns the key of a validation set's latest loss in the extra state of a checkpoint.
std::string lossKey(const ValidationSettings &set);

double secondsSince(std::chrono::steady_clock::time_point start);

} // namespace lmc
