// OUT, the folder of a run: its lock, its files, and the choice of the checkpoint for a start.
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
//   OUT/undone/N/           what a resume or a rewind took back: checkpoints/, exports/,
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
  // Opens the folder that rank 0 has locked. Error: the text in its lock file is not `owner`, so
  // this rank sees another folder.
  static Result<std::unique_ptr<RunDirectory>> join(const std::string &path,
                                                    const std::string &owner);
  // Opens the folder `path`, which need not exist, for reading only and without a lock.
  static std::unique_ptr<RunDirectory> look(const std::string &path);
  // Returns open()'s Error if another process holds the lock of the folder `path` now.
  static Result<void> checkFree(const std::string &path);
  ~RunDirectory();
  RunDirectory(const RunDirectory &) = delete;
  RunDirectory &operator=(const RunDirectory &) = delete;

  const std::string &path() const { return folder; }
  // Returns the text in the lock file, which says which process holds the lock.
  const std::string &lockText() const { return owner; }

  // Returns the identity of the latest start; nullopt if there is none. A damaged file is described
  // in `fault` and, unless the folder is only looked at, renamed to run.json.damaged.
  Result<std::optional<RunIdentity>> recorded(std::string &fault) const;
  // Copies the plan to OUT/plans if it is not there, and then replaces run.json.
  Result<void> record(const RunIdentity &identity, const PlanFile &plan) const;

  // Returns OUT/undone/N, with N the smallest number that was free at the first call.
  Result<std::string> undone();
  // Makes undone() use a new folder from now on, and moves checkpoints, exports and evaluations of
  // steps after `step` there. Returns the new paths.
  Result<std::vector<std::string>> undoAfter(uint64_t step);

  // Returns an Error if another process has written to the lock file, or if this file is no longer
  // in the folder. The former happens on file systems that do not carry locks from machine to
  // machine.
  Result<void> checkOwner() const;

private:
  RunDirectory(std::string folder, int fd, std::string owner)
      : folder(std::move(folder)), fd(fd), owner(std::move(owner)) {}
  std::string folder;
  int fd;            // descriptor of the lock file; -1: the folder is only looked at
  std::string owner; // the text that this process wrote to the lock file
  std::string undoneFolder;
};

std::string gemmPath(const std::string &folder);

// Opens the plan in OUT/plans with which the run in `folder` was last started or, if `step` is
// given, made the checkpoint of this step. Error: the file is not that plan.
Result<std::unique_ptr<PlanFile>> openRecordedPlan(const std::string &folder,
                                                   std::optional<uint64_t> step);

// Returns the path of the latest checkpoint that events.jsonl in `folder` lists, even if it is no
// longer there.
std::optional<std::string> lastSave(const std::string &folder);

// Returns the checkpoint that `resume` names. "auto" is the newest complete one of `runDirectory`;
// nullopt if it has none. "none" is nullopt. Any other text is the path of a checkpoint or of a
// run's folder. Damaged checkpoints are skipped and added to `damaged`. Error: a damaged checkpoint
// is named, or all are damaged: a run from step 0 would overwrite them.
Result<std::optional<std::string>> chooseCheckpoint(const std::string &resume,
                                                    const std::string &runDirectory,
                                                    std::vector<DamagedCheckpoint> &damaged);

// Returns an error if `runDirectory` has a checkpoint of a later step than `step`, or only damaged
// ones: a run that starts at `step` would mix its checkpoints with them. Otherwise returns the
// folder's damaged checkpoints, of which `damaged` lists those that are known already.
Result<std::vector<DamagedCheckpoint>> checkNothingLater(const std::string &runDirectory,
                                                         uint64_t step,
                                                         std::vector<DamagedCheckpoint> damaged);

// Returns the name and the kind of variables of each file that a checkpoint may have.
std::span<const std::pair<const char *, plan::VariableKind>> stateFiles();

// The place from which a save reads the state, and the ranks that write it together.
struct StateSource {
  std::function<DeviceTensors(plan::VariableKind)> tensorsOfKind;
  Communicator &group;
  std::function<void()> moved; // called whenever a save makes progress
};

// Returns the state on the device. The arguments must outlive the result.
StateSource stateOf(const PlanFile &plan, Device &device, World &world);

// All ranks call the following functions together, like those of Checkpoint.h.

// Returns the maximum bytes that a checkpoint takes on a disk. One rank may call it alone.
Result<uint64_t> checkpointBytes(const PlanFile &plan);

// Saves parameters and moments as saveCheckpoint() does. Error, in addition: OUT no longer exists.
Result<void> saveRun(const std::string &runDirectory, const StateSource &source,
                     const CheckpointState &state, const KeepRules &keep, std::string *remark);

// Saves parameters and moments to OUT/checkpoints/STEP.diverged, and returns this path.
Result<std::string> saveDiverged(const std::string &runDirectory, const StateSource &source,
                                 const CheckpointState &state);

// Loads parameters and moments; refreshCopies() must then set the compute copies. If the checkpoint
// is damaged, it is returned and the variables must not be used.
Result<std::optional<DamagedCheckpoint>> loadRun(const std::string &checkpoint,
                                                 const PlanFile &plan, Device &device,
                                                 World &world);

// Error: the plan's model has no Hugging Face class; the text says why.
Result<void> checkExportable(const PlanFile &plan);

// Writes the master weights as a Hugging Face checkpoint. Several ranks first write one file beside
// the folder, from which rank 0 makes the checkpoint.
Result<void> exportRun(const std::string &directory, const ExportOptions &options,
                       const PlanFile &plan, const StateSource &source);

} // namespace lmc
