// OUT, the folder of a run: its lock, its files, and the choice of the checkpoint from which a run
// starts.
//
//   OUT/run.lock            locked while a run writes to OUT
//    OUT/plan.json           the plan of the latest run: path, fingerprint, settings given by --set
//    OUT/metrics.jsonl       one line per optimizer step
//   OUT/checkpoints/STEP/   see runtime/checkpoint/Checkpoint.h
//   OUT/exports/STEP/       Hugging Face folders
#pragma once

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/device/Device.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

class RunDirectory {
public:
  // Creates the folder `path` if necessary and locks it until this object is destroyed or the
  // process ends in any way. Error: another run holds the lock.
  static Result<std::unique_ptr<RunDirectory>> open(const std::string &path);
  ~RunDirectory();
  RunDirectory(const RunDirectory &) = delete;
  RunDirectory &operator=(const RunDirectory &) = delete;

  const std::string &path() const { return folder; }
  Result<void> rememberPlan(const PlanFile &plan, const std::vector<std::string> &overrides) const;

private:
  RunDirectory(std::string folder, int fd) : folder(std::move(folder)), fd(fd) {}
  std::string folder;
  int fd;
};

// Returns the folder of the checkpoint that `resume` names. "auto" is the newest complete
// checkpoint of `runDirectory` (nullopt if it has no checkpoints), "none" is nullopt, and any other
// text is the path of a checkpoint or of a run's folder. Damaged checkpoints that were skipped are
// listed in `damaged`. Error, with the fault of each: there are checkpoints and none is complete. A
// run that started again from step 0 there would write over them.
Result<std::optional<std::string>> chooseCheckpoint(const std::string &resume,
                                                    const std::string &runDirectory,
                                                    std::vector<DamagedCheckpoint> *damaged);

// Returns an error if `runDirectory` has a checkpoint of a later step than `step`, or only damaged
// ones: the checkpoints of a run that starts at `step` would be mixed with those of another run.
// Otherwise returns the damaged checkpoints that are newer than the newest complete one.
Result<std::vector<DamagedCheckpoint>> checkNothingLater(const std::string &runDirectory,
                                                         uint64_t step);

// Saves parameters and moments to OUT/checkpoints/STEP.
Result<void> saveRun(const std::string &runDirectory, const PlanFile &plan, Device &device,
                     const CheckpointState &state, int keep);

// Reads state.json of a checkpoint. Error, with both fingerprints: the checkpoint does not belong
// to the plan.
Result<CheckpointState> readRunState(const std::string &checkpoint, const PlanFile &plan);

// Loads parameters and moments of a checkpoint. Afterwards refreshCopies() must set the compute
// copies.
Result<void> loadRun(const std::string &checkpoint, const PlanFile &plan, Device &device);

// Writes the master weights to `directory` as a Hugging Face checkpoint.
Result<void> exportRun(const std::string &directory, const PlanFile &plan, Device &device);

} // namespace lmc
