// OUT, the folder of a run: its lock, its files, and the choice of the checkpoint from which a run
// starts.
//
//   OUT/run.lock            locked while a run writes to OUT
//   OUT/run.json            the identity of the run at its latest start
//   OUT/gemm.json           the implementations of matrix products (runtime/device/GemmChoices.h)
//   OUT/plans/HASH.plan     each plan that the run was started with
//   OUT/metrics.jsonl       one line per optimizer step
//   OUT/updates.jsonl       one line per save that is written behind the steps
//   OUT/log.txt             all lines of the console, with times
//   OUT/generated.jsonl     one line per generated text, with its prompt
//   OUT/events.jsonl        one line per event: start, change, warning, checkpoint, exit
//   OUT/tensorboard/, wandb*, on_event.log   see tools/lmc-run/monitors/Monitors.h
//   OUT/ranks/R/            log.txt and events.jsonl of rank R, for each rank but the first
//   OUT/checkpoints/STEP/   see runtime/checkpoint/Checkpoint.h
//   OUT/checkpoints/STEP.diverged/   a checkpoint too: of a run that the guard has stopped
//   OUT/exports/STEP/       Hugging Face folders
//   OUT/evaluations/STEP/   the results of checkpoint.export_command for an export
//   OUT/undone/N/           the files that a resume or a rewind took back: metrics.jsonl,
//   updates.jsonl,
//                           generated.jsonl, checkpoints/, exports/, evaluations/
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
  // Creates the folder `path` if necessary and locks it until this object is destroyed or the
  // process ends in any way. Error: another run holds the lock.
  static Result<std::unique_ptr<RunDirectory>> open(const std::string &path);
  // Opens the folder of a run whose first rank has locked it as `owner`. Error: the folder has no
  // such lock, so it is another folder.
  static Result<std::unique_ptr<RunDirectory>> join(const std::string &path,
                                                    const std::string &owner);
  // Returns the folder `path`, which need not exist, to look at it without its lock: nothing in it
  // is created or changed.
  static std::unique_ptr<RunDirectory> look(const std::string &path);
  // Returns open()'s Error if another process has the lock of the folder `path` now. The folder
  // need not exist, and is not changed.
  static Result<void> checkFree(const std::string &path);
  ~RunDirectory();
  RunDirectory(const RunDirectory &) = delete;
  RunDirectory &operator=(const RunDirectory &) = delete;

  const std::string &path() const { return folder; }
  // Returns the text in the lock file, which says which process holds the lock.
  const std::string &lockText() const { return owner; }

  // Returns the identity of the latest start; nullopt if the folder has none. A damaged file is
  // described in `fault` and, unless the folder is only looked at, renamed to run.json.damaged.
  Result<std::optional<RunIdentity>> recorded(std::string &fault) const;
  // Copies the plan to OUT/plans if it is not there, and then replaces run.json.
  Result<void> record(const RunIdentity &identity, const PlanFile &plan) const;

  // Returns OUT/undone/N and creates it at the first call; N is the smallest free number. Later
  // calls return the same folder.
  Result<std::string> undone();
  // Lets the next call of undone() begin another folder, and moves checkpoints, exports and
  // evaluations of later steps than `step` there. Returns the new paths.
  Result<std::vector<std::string>> undoAfter(uint64_t step);

  // Returns an Error if the lock file says that another process writes to the folder, which happens
  // on file systems that do not carry locks from machine to machine, or if the lock file is not in
  // the folder any more. A disk that cannot be read is no Error.
  Result<void> checkOwner() const;

private:
  RunDirectory(std::string folder, int fd, std::string owner)
      : folder(std::move(folder)), fd(fd), owner(std::move(owner)) {}
  std::string folder;
  int fd;            // descriptor of the lock file; -1: the folder is only looked at
  std::string owner; // the text that this process wrote to the lock file
  std::string undoneFolder;
};

// Returns OUT/gemm.json.
std::string gemmPath(const std::string &folder);

// Opens the plan in OUT/plans with which the run in `folder` was last started or, with `step`, made
// the checkpoint of this step. Error: the file is not that plan.
Result<std::unique_ptr<PlanFile>> openRecordedPlan(const std::string &folder,
                                                   std::optional<uint64_t> step);

// Returns the path of the latest checkpoint that events.jsonl in `folder` lists, even if it was
// moved; nullopt if there was none.
std::optional<std::string> lastSave(const std::string &folder);

// Returns the folder of the checkpoint that `resume` names. "auto" is the newest complete
// checkpoint of `runDirectory` (nullopt if it has no checkpoints), "none" is nullopt, and any other
// text is the path of a checkpoint or of a run's folder. Checkpoints that `damaged` lists are
// skipped, and others whose state.json or sizes are wrong are skipped and added to it. Errors, with
// the fault of each: `resume` names a damaged checkpoint, or there are checkpoints and none is
// complete. A run that started again from step 0 there would write over them.
Result<std::optional<std::string>> chooseCheckpoint(const std::string &resume,
                                                    const std::string &runDirectory,
                                                    std::vector<DamagedCheckpoint> &damaged);

// Returns an error if `runDirectory` has a checkpoint of a later step than `step`, or only damaged
// ones: the checkpoints of a run that starts at `step` would be mixed with those of another run.
// Otherwise returns its damaged checkpoints that are newer than the newest complete one. `damaged`
// lists those that were found before, in any folder.
Result<std::vector<DamagedCheckpoint>> checkNothingLater(const std::string &runDirectory,
                                                         uint64_t step,
                                                         std::vector<DamagedCheckpoint> damaged);

// Returns the files of a checkpoint, and the kind of variable in each. A file exists only if the
// plan has variables of its kind.
std::span<const std::pair<const char *, plan::VariableKind>> stateFiles();

// The place from which a save reads the state, and the ranks that write it together.
struct StateSource {
  std::function<DeviceTensors(plan::VariableKind)> tensorsOfKind;
  Communicator &group;
  std::function<void()> moved; // is called whenever a save makes progress
};

// Returns the state on the device. The arguments must outlive the result.
StateSource stateOf(const PlanFile &plan, Device &device, World &world);

// All ranks call the following functions together, like those of Checkpoint.h.

// Returns the maximum of bytes that a checkpoint of the plan takes on a disk. One rank may call it.
Result<uint64_t> checkpointBytes(const PlanFile &plan);

// Saves parameters and moments to OUT/checkpoints/STEP. `keep`, `suspect` and `remark` are those of
// saveCheckpoint(). It is also an Error if OUT does not exist any more.
Result<void> saveRun(const std::string &runDirectory, const StateSource &source,
                     const CheckpointState &state, const KeepRules &keep,
                     std::optional<uint64_t> suspect, std::string *remark);

// Saves parameters and moments to OUT/checkpoints/STEP.diverged. Returns that path.
Result<std::string> saveDiverged(const std::string &runDirectory, const StateSource &source,
                                 const CheckpointState &state);

// Loads parameters and moments of a checkpoint. Afterwards refreshCopies() must set the compute
// copies. Returns the checkpoint if it is damaged: then the variables hold unverified bytes and
// must not be used.
Result<std::optional<DamagedCheckpoint>> loadRun(const std::string &checkpoint,
                                                 const PlanFile &plan, Device &device,
                                                 World &world);

// Fails if the plan's model has no Hugging Face class; the error says why.
Result<void> checkExportable(const PlanFile &plan);

// Writes the master weights to `directory` as a Hugging Face checkpoint with the given `options`.
// Several ranks first write them to one file beside the folder, from which the first rank makes the
// checkpoint.
Result<void> exportRun(const std::string &directory, const ExportOptions &options,
                       const PlanFile &plan, const StateSource &source);

} // namespace lmc
