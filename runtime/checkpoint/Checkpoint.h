// Checkpoints are folders OUT/checkpoints/STEP/, written atomically and verified when read. Each
// tensor in a checkpoint is complete, so a checkpoint does not depend on the number of ranks.
//
// A checkpoint has one safetensors file per kind of variable, such as moment1.safetensors, and
// `state.json`, which is written last. A save writes and syncs all files in the folder
// `.STEP.partial`, which then gets its final name. So a crash at any moment leaves the earlier
// checkpoints complete. The next save removes a `.partial` folder that a killed save has left.
// While a save replaces a checkpoint, the old folder may have the name `.STEP.replaced` for a
// moment. A damaged checkpoint is renamed to STEP.damaged. A folder STEP.SUFFIX is used only if a
// user gives its path.
//
// state.json is { "format": "lmc-checkpoint", "version": 2, "xxh64": HEX, "state": { "step",
// "samples", "tokens", "position", "fingerprint", "run": {...}, "extra": {KEY: TEXT}, "sources": {
// NAME: { "start", "tokens", "tokens_per_epoch" } }, "files": { NAME: { "bytes", "xxh64": HEX } } }
// }. "sources" is absent if the data is not mixed. The first "xxh64" (seed 0) hashes "state" as
// compact JSON with sorted keys. The "xxh64" of a file is FileDigest::xxh64 (VerifiedRead.h).
#pragma once

#include "ground/plan/PlanFile.h"
#include "ground/support/Result.h"
#include "runtime/checkpoint/VerifiedRead.h"
#include "runtime/comm/Communicator.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

inline constexpr const char *kWeightsFile = "model.safetensors";

// A tensor to write or to fill, in host memory that the caller owns.
struct TensorView {
  std::string name;
  plan::DType dtype;
  std::vector<uint64_t> shape;
  void *data;
  uint64_t bytes;
};

// How far a run has read a source of its training data.
struct SourceState {
  uint64_t start = 0;          // tokens read before position 0 of the present order of the data
  uint64_t tokens = 0;         // all tokens read, including `start`
  uint64_t tokensPerEpoch = 0; // tokens in one epoch of the source
};

struct CheckpointState {
  uint64_t step = 0;                        // number of optimizer steps done
  uint64_t samples = 0;                     // number of samples trained on
  uint64_t tokens = 0;                      // number of tokens trained on
  uint64_t position = 0;                    // index of the next token in the order of the data
  std::map<std::string, SourceState> sources; // by name; empty: sources have no names
  std::string fingerprint;                  // fingerprint of the plan
  nlohmann::json run;                       // the run's identity (RecordedRun.h)
  std::map<std::string, std::string> extra; // other state, such as the best loss
};

// Part of a tensor: bytes [offset, offset + bytes).
struct ByteRange {
  uint64_t offset = 0, bytes = 0;
};

// fetch(index, data) must copy to `data` the part of tensor `index` that this rank writes.
// store(index, data, bytes, offset) must copy `data` to bytes [offset, offset + bytes) of the
// tensor. It must skip the bytes that this rank does not have.
using FetchTensor = std::function<Result<void>(size_t index, void *data)>;
using StoreTensor =
    std::function<Result<void>(size_t index, const void *data, uint64_t bytes, uint64_t offset)>;

struct CheckpointFile {
  std::string name;                // "model.safetensors"
  std::vector<TensorView> tensors; // their `data` is not used
  std::vector<ByteRange> parts;    // per tensor, the bytes that this rank writes
  FetchTensor fetch;
};

// Key of `extra` in a checkpoint that is permanent because a permanent checkpoint was due at an
// earlier step and was not saved there. The value is this earlier step.
inline constexpr const char *kStandsFor = "stands_for";

// The rules by which a save keeps older checkpoints. One rule is enough to keep a checkpoint.
struct KeepRules {
  KeepRules(int newest = 0) : newest(newest) {}
  int newest; // the number of newest checkpoints that stay; 0: all
  // A checkpoint stays if its step is a multiple of `every`, or it has extra[kStandsFor]. 0: off.
  uint64_t every = 0;
  std::string best;                // the checkpoint with the lowest extra[best] stays; "": none
  std::optional<uint64_t> suspect; // the newest checkpoint before step `suspect` stays
};

// All ranks of `group` call these functions together, with equal arguments except for the parts of
// tensors. Either the call succeeds on all ranks, or all ranks get an Error.

// Removes the remains of interrupted saves and exports in `folder`. Renames `.STEP.replaced` to
// STEP if no folder has the name STEP.
Result<void> removeInterrupted(const std::string &folder);

// Saves a checkpoint. Then removes the older checkpoints that no rule of `keep` keeps; the new
// checkpoint counts for keep.newest. First checks the free disk space, and that the run's folder is
// still there: it is not made again. After an Error, all earlier checkpoints are intact. If only
// the removal of an older checkpoint fails, `remark` of the rank at position 0 gets the reason, and
// there is no Error. If `remark` is null, this failure is an Error.
Result<void> saveCheckpoint(Communicator &group, const std::string &runDirectory,
                            const CheckpointState &state, const std::vector<CheckpointFile> &files,
                            const KeepRules &keep, std::string *remark = nullptr);

// Returns the maximum number of bytes on disk of a checkpoint with these files.
Result<uint64_t> checkpointBytes(const std::vector<CheckpointFile> &files);

// Saves a checkpoint as OUT/checkpoints/STEP.SUFFIX (or STEP.SUFFIX-2, ...). No save removes it,
// and "auto" never resumes from it. Returns its path.
Result<std::string> saveAside(Communicator &group, const std::string &runDirectory,
                              const CheckpointState &state,
                              const std::vector<CheckpointFile> &files, const std::string &suffix);

// Returns the steps of the complete checkpoints, newest first. Checksums are not verified.
Result<std::vector<uint64_t>> listCheckpoints(const std::string &runDirectory);

// A folder that has the name of a checkpoint but does not hold a readable one.
struct DamagedCheckpoint {
  std::string path, fault;
};

// Returns the folder of the newest complete checkpoint, or nullopt. Checksums are not compared. If
// a newer checkpoint is damaged, adds it to `damaged`, unless it is in this list already.
Result<std::optional<std::string>> findLatestCheckpoint(const std::string &runDirectory,
                                                        std::vector<DamagedCheckpoint> &damaged);

// Renames each folder to PATH.damaged (or PATH.damaged-2, ...). Returns the new paths.
Result<std::vector<std::string>> moveAside(const std::vector<DamagedCheckpoint> &damaged);

// Reads state.json. Verifies the listed files' sizes and, with `verifyChecksums`, their hashes.
Result<CheckpointState> readCheckpointState(const std::string &directory, bool verifyChecksums);

// The contents of a checkpoint's state.json, and the files that it lists, ordered by name.
struct CheckpointContents {
  CheckpointState state;
  std::vector<RecordedFile> files;
};

// Reads state.json of a checkpoint folder, but not the files that it lists.
Result<CheckpointContents> readCheckpointContents(const std::string &directory);

// A file of a checkpoint that a load reads. Several threads call `store` at the same time.
struct CheckpointTarget {
  std::string name;                // "model.safetensors"
  std::vector<TensorView> tensors; // their `data` is not used
  std::vector<ByteRange> parts;    // per tensor, the bytes that this rank has
  StoreTensor store;
};

// Loads files of a checkpoint. Each file must hold exactly the tensors of its target. A single rank
// reads each byte once, on several threads. Several ranks divide the verification of the files
// among them; then each reads its `parts`. If a file is damaged, returns a DamagedCheckpoint; the
// stored bytes must then not be used. Errors: a file has other tensors, which is found before the
// first call of `store`; `store` failed.
Result<std::optional<DamagedCheckpoint>>
loadCheckpoint(Communicator &group, const std::string &directory,
               const std::vector<CheckpointTarget> &targets);

} // namespace lmc
