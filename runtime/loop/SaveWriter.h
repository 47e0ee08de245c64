// Writes checkpoints and exports: at once, or behind the training steps from a snapshot.
#pragma once

#include "runtime/folder/RunDirectory.h"
#include "runtime/folder/Snapshot.h"
#include "runtime/monitor/Updates.h"
#include "runtime/settings/AdamWStep.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace lmc {

// The files to write of the state after one step.
struct SaveJob {
  CheckpointState state;
  bool checkpoint = false;
  KeepRules keep; // the arguments of saveCheckpoint(), with `suspect`
  std::optional<uint64_t> suspect;
  std::string exportFolder;     // "": no export
  std::function<void()> before; // called by the writing thread at its begin; may be null
  // The step that made the state. After a snapshot is written, the thread computes the step's
  // update of each tensor. Absent: the step was skipped.
  std::optional<AdamWStep> update;
};

// What became of a job.
struct SaveOutcome {
  struct Part {
    Result<void> written;
    std::string path;
    uint64_t bytes = 0;
    double seconds = 0;
  };
  uint64_t step = 0;
  std::optional<Part> checkpoint, exported;
  std::optional<StepUpdates> updates;
  double updateSeconds = 0; // seconds that computing the updates took
  std::vector<std::string> warnings;
};

// Writes checkpoints to the folder of a run. All ranks call the same functions in the same order.
class SaveWriter {
public:
  // The arguments must outlive the writer.
  SaveWriter(const std::string &runDirectory, const PlanFile &plan, Device &device, World &world);
  // Waits until the job is written.
  ~SaveWriter();

  // Allocates memory for a snapshot, so that begin() may be called. Error: one of the ranks has too
  // little memory for it.
  Result<void> allocate();
  bool hasSnapshot() const { return snapshot != nullptr; }
  uint64_t snapshotBytes() const { return snapshot->bytes(); }

  // Writes a job at once. No other job may be under way.
  SaveOutcome write(const SaveJob &job);

  // Takes a snapshot of the state, from which the job is written. No other job may be under way.
  // Error: as of Device::wait().
  Result<void> begin(SaveJob job);
  // Must be called now and then, so that writing begins when the snapshot is complete. Error: as of
  // Device::wait().
  Result<void> poll();
  // Returns true from begin() until finish().
  bool isBusy() const { return job.has_value(); }
  // Returns true if the job that is under way is written, so that finish() returns at once. Has no
  // meaning unless isBusy().
  bool isWritten() const { return written; }
  // Waits until the job is written. Each piece that is written counts as progress of this rank.
  // Error: the device failed, so that there is no copy of the state.
  Result<SaveOutcome> finish();
  // Return what the present job writes, and of which step. isBusy() must be true.
  bool isCheckpoint() const { return job->checkpoint; }
  bool isExport() const { return !job->exportFolder.empty(); }
  uint64_t step() const { return job->state.step; }

private:
  void startThread();
  // Adds the updates of the job's step to the outcome.
  void addUpdates();

  const std::string folder;
  const PlanFile &plan;
  Device &device;
  World &world;
  std::unique_ptr<Snapshot> snapshot;
  std::optional<SaveJob> job;
  SaveOutcome outcome;               // of the thread
  std::atomic<bool> written = false; // the thread has set `outcome`
  std::atomic<uint64_t> pieces = 0;  // pieces of the snapshot that the thread has read
  std::thread thread;                // runs while a job is being written
};

} // namespace lmc
