// Checkpoints: OUT/checkpoints/STEP/, written atomically, verified when read.
// Tensors are logical and whole: nothing in a checkpoint depends on the ranks.
//
// A folder holds `state.json` (what follows) and one safetensors file per kind
// of state: model.safetensors (fp32 master weights under their logical names),
// moment1.safetensors, moment2.safetensors, and for moments in 8 bits
// moment1_scale.safetensors and moment2_scale.safetensors. It is written as
// `.STEP.partial`, every file is fsynced, `state.json` with the xxh64 and size of
// each file comes last, then one rename makes it visible. A crash at any moment
// leaves the earlier checkpoints whole and at worst a `.partial` folder, which
// the next save removes. A checkpoint of the same step is replaced by exchanging
// the two folders' names; where a file system cannot, the old one is set aside as
// `.STEP.replaced` for a moment, and is found there after a crash.
//
// state.json is { "format": "lmc-checkpoint", "version": 1, "xxh64": HEX,
// "state": { "step", "samples", "tokens", "fingerprint", "extra": {KEY: TEXT},
// "files": { NAME: { "bytes", "xxh64": HEX } } } }; its own xxh64 (seed 0) is that
// of the compact dump of "state" with sorted keys.
#pragma once

#include "runtime/plan/PlanFile.h"
#include "runtime/support/Result.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// A tensor to be written or filled: host memory owned by the caller.
struct TensorView {
  std::string name;
  plan::DType dtype;
  std::vector<uint64_t> shape;
  void *data;
  uint64_t bytes;
};

struct CheckpointState {
  uint64_t step = 0;          // optimizer steps done
  uint64_t samples = 0;       // global sample index that comes next
  uint64_t tokens = 0;        // tokens trained on
  std::string fingerprint;    // of the plan
  std::map<std::string, std::string> extra; // best losses and the like
};

// Writes one tensor at a time, so that device state need not be held twice:
// `fetch(i, data)` must fill `data` (tensors[i].bytes bytes).
using FetchTensor = std::function<Result<void>(size_t index, void *data)>;
using StoreTensor = std::function<Result<void>(size_t index, const void *data)>;

struct CheckpointFile {
  std::string name;                 // "model.safetensors"
  std::vector<TensorView> tensors;  // `data` is not used
  FetchTensor fetch;
};

// Saves atomically and then keeps only the newest `keep` checkpoints (0: all),
// removing the oldest only after the new one is durable. The one just saved is
// always kept and counted, also when later steps of an abandoned run are there;
// folders that are no whole checkpoint are neither counted nor removed. Checks
// first that the disk has room. Errors (full or unwritable disk, a failing
// `fetch`) leave what was there whole.
Result<void> saveCheckpoint(const std::string &runDirectory, const CheckpointState &state,
                            const std::vector<CheckpointFile> &files, int keep);

// The newest complete checkpoint under `runDirectory`: the highest step whose
// state.json, sizes and checksums verify; nullopt when there is none. Broken ones
// are skipped and named in `warnings` (may be null). Changes nothing on the disk.
Result<std::optional<std::string>> findLatestCheckpoint(const std::string &runDirectory,
                                                        std::vector<std::string> *warnings);

// Reads state.json of a checkpoint folder; verifies sizes (and checksums when
// `verifyChecksums`).
Result<CheckpointState> readCheckpointState(const std::string &directory, bool verifyChecksums);

// Reads the named tensors of one file; every one must be there with this dtype
// and shape, and the file must hold no others. The file's size and checksum and
// all tensors' names and shapes are verified before the first `store`.
Result<void> readCheckpointFile(const std::string &directory, const std::string &file,
                                const std::vector<TensorView> &tensors, const StoreTensor &store);

} // namespace lmc
