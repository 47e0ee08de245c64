// Checkpoints: OUT/checkpoints/STEP/, written atomically, verified when read.
//
// A folder holds `state.json` (what follows) and one safetensors file per kind
// of state: model.safetensors (fp32 master weights under their logical names),
// moment1.safetensors, moment2.safetensors. It is written as
// `.STEP.partial`, every file is fsynced, `state.json` with the xxh64 and size of
// each file comes last, then one rename makes it visible. A crash at any moment
// leaves the earlier checkpoints whole and at worst a `.partial` folder, which
// the next save removes.
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
// removing the oldest only after the new one is durable. Checks first that the
// disk has room. Errors (full or unwritable disk) leave what was there whole.
Result<void> saveCheckpoint(const std::string &runDirectory, const CheckpointState &state,
                            const std::vector<CheckpointFile> &files, int keep);

// The newest complete checkpoint under `runDirectory`, by verified state.json;
// nullopt when there is none. Broken ones are skipped and named in `warnings`.
Result<std::optional<std::string>> findLatestCheckpoint(const std::string &runDirectory,
                                                        std::vector<std::string> *warnings);

// Reads state.json of a checkpoint folder; verifies sizes (and checksums when
// `verifyChecksums`).
Result<CheckpointState> readCheckpointState(const std::string &directory, bool verifyChecksums);

// Reads the named tensors of one file; every one must be there with this dtype
// and shape, and the file must hold no others.
Result<void> readCheckpointFile(const std::string &directory, const std::string &file,
                                const std::vector<TensorView> &tensors, const StoreTensor &store);

} // namespace lmc
