// Checkpoints are folders OUT/checkpoints/STEP/, written atomically and verified when read. Each
// tensor in a checkpoint is complete, so nothing in it depends on the number of ranks.
//
// A checkpoint has `state.json` (described below) and one safetensors file per kind of variable:
// model.safetensors (master weights under Hugging Face's names), moment1.safetensors,
// moment2.safetensors, and for 8-bit moments moment1_scale.safetensors and
// moment2_scale.safetensors. All files are first written to the folder `.STEP.partial` and fsynced;
// `state.json`, with the size and xxh64 of each file, is written last. One rename then gives the
// folder its final name. A crash at any moment leaves the earlier checkpoints complete and at most
// one `.partial` folder, which the next save removes. An existing checkpoint of the same step is
// replaced by exchanging the names of the two folders. On a file system that cannot do this, the
// old folder has the name `.STEP.replaced` for a moment; after a crash, it is read under that name.
// A damaged checkpoint is renamed to STEP.damaged and kept. A folder with such a suffix is used as
// a checkpoint only if a user gives its path.
//
// state.json is { "format": "lmc-checkpoint", "version": 2, "xxh64": HEX, "state": { "step",
// "samples", "tokens", "position", "fingerprint", "run": {...}, "extra": {KEY: TEXT}, "sources": {
// NAME: { "start", "tokens", "tokens_per_epoch" } }, "files": { NAME: { "bytes", "xxh64": HEX } } }
// }; "sources" is absent if the data is not mixed. The first "xxh64" (seed 0) hashes the compact
// dump of "state" with sorted keys; that of a file is FileDigest::xxh64 (VerifiedRead.h).
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
  uint64_t start = 0;          // tokens read before position 0 of the data
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

// The bytes [offset, offset + bytes) of a tensor.
struct ByteRange {
  uint64_t offset = 0, bytes = 0;
};

// Callbacks that copy tensors from or to a device or another place; the host holds one at a time.
// fetch(i, data) must fill `data` with tensor i, or with the part of tensor i that this rank
// writes. store(i, data, bytes, offset) must copy `data` to the bytes [offset, offset + bytes) of
// tensor i; a rank that has only a part of the tensor drops the other bytes.
using FetchTensor = std::function<Result<void>(size_t index, void *data)>;
using StoreTensor =
    std::function<Result<void>(size_t index, const void *data, uint64_t bytes, uint64_t offset)>;

struct CheckpointFile {
  std::string name;                // "model.safetensors"
  std::vector<TensorView> tensors; // their `data` is not used
  std::vector<ByteRange> parts;    // per tensor, the bytes that this rank writes
  FetchTensor fetch;
};

// A key of `extra`: a permanent checkpoint that was due after an earlier step, but is made only
// now, has this earlier step as the value.
inline constexpr const char *kStandsFor = "stands_for";

// The rules by which a save keeps checkpoints. One that any rule keeps is not removed.
struct KeepRules {
  KeepRules(int newest = 0) : newest(newest) {}
  int newest; // the number of newest checkpoints that stay; 0: all
  // Checkpoints stay whose step, or whose kStandsFor, is a multiple of this; 0: none by this rule.
  uint64_t every = 0;
  std::string best; // the one with the lowest extra[best] stays; "": none
};

// All ranks of a `group` call these functions together, with the same arguments except the parts.
// All succeed, or all get an Error. The rank at position 0 does what must be done once.

// Removes the folders that interrupted saves or exports have left in `folder`: OUT/checkpoints or
// OUT/exports. A folder `.STEP.replaced` gets the name STEP back if no folder has that name.
Result<void> removeInterrupted(const std::string &folder);

// Saves a checkpoint atomically and, once it is on the disk, removes all others that no rule of
// `keep` keeps. The new checkpoint is always kept and counted as one of the newest, even if an
// abandoned run left checkpoints of later steps. A folder that is not a complete checkpoint is
// neither counted nor removed. If `suspect` is given, the newest checkpoint of a step before it
// stays as well: the state from step `suspect` on may be worthless. The free disk space is checked
// first. An Error (a full or unwritable disk, a failing `fetch`) leaves all earlier checkpoints
// intact. If the save succeeds but an older checkpoint cannot be removed, `remark` of the rank at
// position 0 gets the reason, and the result is a success; without `remark` it is an Error.
Result<void> saveCheckpoint(Communicator &group, const std::string &runDirectory,
                            const CheckpointState &state, const std::vector<CheckpointFile> &files,
                            const KeepRules &keep, std::optional<uint64_t> suspect = std::nullopt,
                            std::string *remark = nullptr);

// Returns the maximum number of bytes that a checkpoint with these files takes on a disk, including
// the file system's own records. The files' `parts` and `fetch` are not used.
Result<uint64_t> checkpointBytes(const std::vector<CheckpointFile> &files);

// Saves a checkpoint as OUT/checkpoints/STEP.SUFFIX (STEP.SUFFIX-2, ... if this name is taken),
// from which "auto" does not resume and which no save replaces or removes. Returns the path.
Result<std::string> saveAside(Communicator &group, const std::string &runDirectory,
                              const CheckpointState &state,
                              const std::vector<CheckpointFile> &files, const std::string &suffix);

// Returns the steps of the complete checkpoints under `runDirectory`, newest first. Checksums are
// not verified.
Result<std::vector<uint64_t>> listCheckpoints(const std::string &runDirectory);

// A folder with the name of a checkpoint that cannot be read as one.
struct DamagedCheckpoint {
  std::string path, fault;
};

// Returns the folder of the newest checkpoint under `runDirectory`: the one with the highest step
// whose state.json and file sizes are right; nullopt if there is none. Checksums are not compared:
// loadCheckpoint() does that while it reads. Newer checkpoints that are damaged are skipped and
// added to `damaged`; those that `damaged` lists already are only skipped.
Result<std::optional<std::string>> findLatestCheckpoint(const std::string &runDirectory,
                                                        std::vector<DamagedCheckpoint> &damaged);

// Renames each of the folders to PATH.damaged (PATH.damaged-2, ... if this name is taken), which no
// save replaces or removes. Returns the new paths.
Result<std::vector<std::string>> moveAside(const std::vector<DamagedCheckpoint> &damaged);

// Reads state.json of a checkpoint folder. Verifies the sizes of the files that it lists, and with
// `verifyChecksums` also their checksums.
Result<CheckpointState> readCheckpointState(const std::string &directory, bool verifyChecksums);

// The contents of a checkpoint's state.json, and the files that it lists, ordered by name.
struct CheckpointContents {
  CheckpointState state;
  std::vector<RecordedFile> files;
};

// Reads state.json of a checkpoint folder, but not the files that it lists.
Result<CheckpointContents> readCheckpointContents(const std::string &directory);

// A file of a checkpoint, and where to store its tensors. Several threads call `store` at the same
// time, with disjoint ranges.
struct CheckpointTarget {
  std::string name;                // "model.safetensors"
  std::vector<TensorView> tensors; // their `data` is not used
  std::vector<ByteRange> parts;    // per tensor, the bytes that this rank has
  StoreTensor store;
};

// Loads files of the checkpoint `directory`. A single rank reads each byte once, on several
// threads; several ranks divide the verification among them and then read their parts. Every file
// must hold exactly the tensors of its target, each with the given dtype and shape; this is
// verified before the first call of `store`. Checksums are verified while the bytes are stored: if
// they show damage, the checkpoint is returned, and the stored bytes must not be used. Error: the
// checkpoint has other tensors, or `store` failed.
Result<std::optional<DamagedCheckpoint>>
loadCheckpoint(Communicator &group, const std::string &directory,
               const std::vector<CheckpointTarget> &targets);

} // namespace lmc
