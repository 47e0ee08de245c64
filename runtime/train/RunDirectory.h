// OUT, the folder of a run: its lock, what it remembers, and which checkpoint a
// run starts from.
//
//   OUT/run.lock            held while a run writes here
//   OUT/plan.json           the plan that ran last: path, fingerprint, settings changed
//   OUT/metrics.jsonl       a line per step
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
  // Creates `path` if need be and locks it until this is destroyed, or the
  // process ends however it ends. An Error when another run has it.
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

// The checkpoint that `resume` means: "auto" the newest complete one of
// `runDirectory` (none where that is empty), "none", or the path of a checkpoint
// or of a run. Broken checkpoints that were passed over are named in `warnings`.
Result<std::optional<std::string>> chooseCheckpoint(const std::string &resume,
                                                    const std::string &runDirectory,
                                                    std::vector<std::string> *warnings);

// An Error when `runDirectory` holds a checkpoint later than `step`: a run that
// starts there would mix with the one that left it.
Result<void> checkNothingLater(const std::string &runDirectory, uint64_t step);

// Saves parameters and moments: OUT/checkpoints/STEP.
Result<void> saveRun(const std::string &runDirectory, const PlanFile &plan, Device &device,
                     const CheckpointState &state, int keep);

// state.json of a checkpoint of this very plan's model; an Error naming both
// fingerprints when it is of another.
Result<CheckpointState> readRunState(const std::string &checkpoint, const PlanFile &plan);

// Loads parameters and moments. Compute copies still have to be refreshed.
Result<void> loadRun(const std::string &checkpoint, const PlanFile &plan, Device &device);

// Writes `directory` as a Hugging Face checkpoint, fp32 masters.
Result<void> exportRun(const std::string &directory, const PlanFile &plan, Device &device);

} // namespace lmc
