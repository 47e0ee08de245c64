// A checkpoint that the user names, with what can be known of it without its plan.
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
  std::vector<DamagedCheckpoint> skipped; // newer ones, which are damaged
};

// Opens the checkpoint `path`: a folder with state.json, or a run's folder, whose newest complete
// checkpoint it is. The sizes of the files are verified.
Result<CheckpointFolder> openCheckpoint(const std::string &path);

// Returns the checkpoint's file of master weights.
Result<RecordedFile> weightsOf(const CheckpointFolder &checkpoint);

} // namespace lmc
