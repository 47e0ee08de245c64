// A checkpoint that the user names, and what can be read of it without the run's compiled plan.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/RecordedRun.h"

#include <string>
#include <vector>

namespace lmc {

struct CheckpointFolder {
  std::string path;
  CheckpointState state;
  RunIdentity run;
  std::vector<RecordedFile> files;
  std::vector<DamagedCheckpoint> skipped; // damaged checkpoints of the run, newer than this one
};

// Opens the checkpoint in the folder `path`. If `path` is a run's folder, opens the run's newest
// complete checkpoint. Verifies the sizes of files, but no checksums.
Result<CheckpointFolder> openCheckpoint(const std::string &path);

// Returns the checkpoint's file of master weights.
Result<RecordedFile> weightsOf(const CheckpointFolder &checkpoint);

} // namespace lmc
