// The folder of a run, OUT: its lock and files. Also chooses the checkpoint that a start loads.
//
//   OUT/run.lock            locked while a run writes to OUT
//   OUT/run.json            the identity of the run at its latest start
//   OUT/gemm.json           the implementations of matrix products (runtime/device/GemmChoices.h)
//   OUT/plans/HASH.plan     each plan that the run was started with
//   OUT/metrics.jsonl       one line per optimizer step
//   OUT/updates.jsonl       one line per save that is written in the background
//   OUT/log.txt             all lines of the console, with times
//   OUT/generated.jsonl     one line per generated text, with its prompt
//   OUT/events.jsonl        one line per event: start, change, warning, checkpoint, exit
//   OUT/tensorboard/, wandb*, on_event.log   see tools/lmc-run/monitors/Monitors.h
//   OUT/ranks/R/            log.txt and events.jsonl of rank R, for each rank but the first
//   OUT/checkpoints/STEP/   see runtime/checkpoint/Checkpoint.h
//   OUT/checkpoints/STEP.diverged/   the last checkpoint of a run that the guard has stopped
//   OUT/exports/STEP/       Hugging Face folders
//   OUT/evaluations/STEP/   the results of checkpoint.export_command for an export
//   OUT/undone/N/           what a resume or a rewind moved away: checkpoints/, exports/,
//                           evaluations/, metrics.jsonl, updates.jsonl, generated.jsonl
#pragma once

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/HuggingFace.h"
#include "runtime/device/Device.h"
#include "runtime/folder/DeviceTensors.h"
#include "runtime/settings/RunIdentity.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lmc {

class RunDirectory {
public:
  // Creates the folder `path` if necessary, and locks it while this object exists. Error: another
  // run holds the lock.
  static Result<std::unique_ptr<RunDirectory>> open(const std::string &path);
  // Opens the folder that rank 0 has locked. Error: the text of the lock file is not `owner`, so
  // the path leads to another folder on this rank's host.
  static Result<std::unique_ptr<RunDirectory>> join(const std::string &path,
                                                    const std::string &owner);
  // Opens the folder `path`, which need not exist, for reading only and without a lock.
  static std::unique_ptr<RunDirectory> look(const std::string &path);
  // Returns the Error of open() if another process has locked the folder `path`.
  static Result<void> checkFree(const std::string &path);
  ~RunDirectory();
  RunDirectory(const RunDirectory &) = delete;
  RunDirectory &operator=(const RunDirectory &) = delete;

  const std::string &path() const { return folder; }
  const std::string &lockText() const { return owner; }

  // Returns the identity at the latest start; nullopt without an intact run.json. If it is damaged,
  // says so in `fault`, and renames it to run.json.damaged unless look() made this object.
  Result<std::optional<RunIdentity>> recorded(std::string &fault) const;
  // Copies the plan to OUT/plans if it is not there, and then replaces run.json.
  Result<void> record(const RunIdentity &identity, const PlanFile &plan) const;

  // Returns OUT/undone/N. The first call of undone() chooses the smallest N without a folder.
  Result<std::string> undone();
  // Moves the checkpoints, exports and evaluations of steps after `step` to a new folder, which
  // undone() returns from now on. Returns their new paths.
  Result<std::vector<std::string>> undoAfter(uint64_t step);

  // Returns an Error if the lock file is gone, or if another process has written to it. The latter
  // can happen on file systems that do not share locks between machines.
  Result<void> checkOwner() const;

private:
  RunDirectory(std::string folder, int fd, std::string owner)
      : folder(std::move(folder)), fd(fd), owner(std::move(owner)) {}
  std::string folder;
  int fd;            // descriptor of the lock file; -1: look() made this object
  std::string owner; // the text that this process wrote to the lock file
  std::string undoneFolder;
};

std::string gemmPath(const std::string &folder);

// Opens a plan in OUT/plans of the run in `folder`. It is the plan that made the checkpoint of
// `step` or, without `step`, the plan of the latest start. Error: the file is another plan.
Result<std::unique_ptr<PlanFile>> openRecordedPlan(const std::string &folder,
                                                   std::optional<uint64_t> step);

// Returns the path of the latest checkpoint in events.jsonl, even if the checkpoint no longer
// exists.
std::optional<std::string> lastSave(const std::string &folder);

// Returns the checkpoint that `resume` names. "auto" names the newest complete checkpoint in
// `runDirectory`, if there is one; "none" names none. Any other text is the path of a checkpoint or
// of a run's folder. Adds damaged checkpoints that it skips to `damaged`. Error: `resume` is the
// path of a damaged checkpoint, or all checkpoints are damaged.
Result<std::optional<std::string>> chooseCheckpoint(const std::string &resume,
                                                    const std::string &runDirectory,
                                                    std::vector<DamagedCheckpoint> &damaged);

// Returns an error if `runDirectory` has a checkpoint of a step after `step`, or has only damaged
// ones. A run that starts at `step` must not mix its checkpoints with later ones. Otherwise returns
// the damaged checkpoints that are newer than the newest complete one. `damaged` has the damaged
// checkpoints that were found before this call.
Result<std::vector<DamagedCheckpoint>> checkNothingLater(const std::string &runDirectory,
                                                         uint64_t step,
                                                         std::vector<DamagedCheckpoint> damaged);

// Returns each file that a checkpoint may have: its name, and the kind of the variables in it.
std::span<const std::pair<const char *, plan::VariableKind>> stateFiles();

// Provides the state to save, from the device or a snapshot, and the ranks that write it together.
struct StateSource {
  std::function<DeviceTensors(plan::VariableKind)> tensorsOfKind;
  Communicator &group;
  std::function<void()> moved; // called whenever a save makes progress
};

// Returns a source that reads the state from the device. The arguments must outlive the result.
StateSource stateOf(const PlanFile &plan, Device &device, World &world);

// All ranks call the following functions together, like those of Checkpoint.h.

// Returns the maximum number of bytes of a checkpoint on a disk. One rank may call it alone.
Result<uint64_t> checkpointBytes(const PlanFile &plan);

// Saves parameters and moments as saveCheckpoint() does.
Result<void> saveRun(const std::string &runDirectory, const StateSource &source,
                     const CheckpointState &state, const KeepRules &keep, std::string *remark);

// Saves parameters and moments to OUT/checkpoints/STEP.diverged, and returns this path.
Result<std::string> saveDiverged(const std::string &runDirectory, const StateSource &source,
                                 const CheckpointState &state);

// Loads parameters and moments. The caller must then call refreshCopies(), which sets the compute
// copies. Returns the checkpoint if it is damaged; then the variables must not be used.
Result<std::optional<DamagedCheckpoint>> loadRun(const std::string &checkpoint,
                                                 const PlanFile &plan, Device &device,
                                                 World &world);

// Returns an Error if the plan's model cannot be written as a Hugging Face checkpoint.
Result<void> checkExportable(const PlanFile &plan);

// Writes the master weights as a Hugging Face checkpoint. If there are several ranks, they first
// write one temporary file together. Rank 0 then makes the checkpoint from it.
Result<void> exportRun(const std::string &directory, const ExportOptions &options,
                       const PlanFile &plan, const StateSource &source);

} // namespace lmc
