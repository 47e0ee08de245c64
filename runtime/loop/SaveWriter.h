// Writes checkpoints and exports: at once, or in the background from a snapshot of the state.
#pragma once

#include "runtime/folder/RunDirectory.h"
#include "runtime/folder/Snapshot.h"
#include "runtime/monitor/Metrics.h"
#include "runtime/settings/Settings.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace lmc {

// The files to write from the state after one step.
struct SaveJob {
  CheckpointState state;
  bool checkpoint = false;
  KeepRules keep;
  std::string exportFolder;     // "": no export
  std::function<void()> before; // called by the writing thread first; may be null
  // The optimizer step that made the state; nullopt if it was skipped. Used for updates.jsonl.
  std::optional<AdamWStep> update;
};

// The result of a job.
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
  double updateSeconds = 0; // time to compute the updates
  std::vector<std::string> warnings;
};

// Writes checkpoints to the folder of a run. All ranks call the same functions in the same order.
class SaveWriter {
public:
  // The arguments must outlive the writer.
  SaveWriter(const std::string &runDirectory, const PlanFile &plan, Device &device, World &world);
  // Waits until the job is written.
  ~SaveWriter();

  // Allocates the snapshot, which begin() needs. Error: one of the ranks has too little memory.
  Result<void> allocate();
  bool hasSnapshot() const { return snapshot != nullptr; }
  uint64_t snapshotBytes() const { return snapshot->bytes(); }

  // Writes a job at once. Requires !isBusy().
  SaveOutcome write(const SaveJob &job);

  // Takes a snapshot of the state, from which poll() starts to write the job. Requires !isBusy().
  Result<void> begin(SaveJob job);
  // Starts the writing once the snapshot is complete; must be called repeatedly until then.
  Result<void> poll();
  // Returns true from begin() until finish().
  bool isBusy() const { return job.has_value(); }
  // Returns true if the job is written, so that finish() returns at once. Requires isBusy().
  bool isWritten() const { return written; }
  // Waits until the job is written. Each written piece counts as progress of this rank. Error: the
  // device failed, so there is no snapshot.
  Result<SaveOutcome> finish();
  // Return whether the job writes a checkpoint or an export, and of which step. Require isBusy().
  bool isCheckpoint() const { return job->checkpoint; }
  bool isExport() const { return !job->exportFolder.empty(); }
  uint64_t step() const { return job->state.step; }

private:
  void startThread();
  // Computes how much the job's step changed the weights, and adds this to `outcome`.
  void addUpdates();

  const std::string folder;
  const PlanFile &plan;
  Device &device;
  World &world;
  std::unique_ptr<Snapshot> snapshot;
  std::optional<SaveJob> job;
  SaveOutcome outcome;               // set by the thread
  std::atomic<bool> written = false; // the thread has set `outcome`
  std::atomic<uint64_t> pieces = 0;  // pieces of the snapshot that the thread has read
  std::thread thread;                // runs while a job is being written
};

} // namespace lmc
