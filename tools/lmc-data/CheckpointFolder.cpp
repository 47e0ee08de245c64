#include "tools/lmc-data/CheckpointFolder.h"

#include "ground/support/File.h"

#include <nlohmann/json.hpp>

namespace lmc {

static Result<std::string> findFolder(const std::string &path,
                                      std::vector<DamagedCheckpoint> &skipped) {
  if (exists(path + "/state.json"))
    return path;
  LMC_LET(latest, findLatestCheckpoint(path, skipped));
  if (*latest)
    return **latest;
  if (!skipped.empty())
    return Error{skipped.front().fault};
  return userError("{}: no checkpoint there (a folder with state.json, or a run with checkpoints/)",
                   path);
}

Result<CheckpointFolder> openCheckpoint(const std::string &path) {
  CheckpointFolder checkpoint;
  LMC_LET(folder, findFolder(path, checkpoint.skipped));
  checkpoint.path = *folder;
  LMC_TRY(readCheckpointState(*folder, /*verifyChecksums=*/false));
  LMC_LET(contents, readCheckpointContents(*folder));
  checkpoint.state = std::move(contents->state);
  checkpoint.files = std::move(contents->files);
  try {
    checkpoint.run = runIdentityFromJson(checkpoint.state.run);
  } catch (const nlohmann::json::exception &) {
    return userError("{}: its state.json does not describe the run; it is of another release: use "
                     "the release that wrote it",
                     *folder);
  }
  return checkpoint;
}

Result<RecordedFile> weightsOf(const CheckpointFolder &checkpoint) {
  for (const RecordedFile &file : checkpoint.files)
    if (file.path == checkpoint.path + "/" + kWeightsFile)
      return file;
  return userError("{}: the checkpoint has no {}", checkpoint.path, kWeightsFile);
}

} // namespace lmc
