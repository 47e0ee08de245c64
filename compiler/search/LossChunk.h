// Chooses the number of tokens whose logits exist at one time, for memory.loss_chunk = "auto".
//
// The head's products and the loss are computed for one chunk of tokens after the other. Each chunk
// reads and writes the main gradient of the head's weights (f32 [vocabulary, hidden]) once. So
// larger chunks move fewer bytes, and their products have more tiles, but their logits take more
// memory. The candidates are therefore compared by predicted time and by the bytes of their plans,
// together with what the layers recompute (RecomputeSearch.h).
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/ArrayRef.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <vector>

namespace lmc {

// A size of the chunks of the loss, and the memory and time that depend on it.
struct LossChunk {
  int64_t tokens = 0;            // tokens per chunk
  uint64_t logitsBytes = 0;      // bytes of a chunk's logits
  uint64_t headAndLossBytes = 0; // PlanMeasures::headAndLossBytes
  double seconds = 0;            // PlanMeasures::otherSeconds
};

// Returns the chunk of the first loss of a module before the fusion phase, with the bytes of its
// logits; `tokens` is 0 if the module has no loss.
LossChunk lossChunkOf(mlir::ModuleOp module);

// Returns the candidates for the loss of `module`, in rising order: the module's own chunk; the
// powers of two from 256 tokens up that are smaller than the micro-batch; and the whole
// micro-batch. Except for the module's own, chunks with more than 4 GiB of logits, and those that
// would make more than 128 chunks, are left out. Returns nothing if the module has no loss.
//
// Beyond 4 GiB there is little to gain: with a vocabulary of 131072 and bf16, 4 GiB are the logits
// of 16384 tokens. On an H100 the gradient of the head's weights (131072 x 2048) is computed at 508
// TFLOP/s from 1024 tokens and at 697 from 4096 (bench/results/gpu-2026-11-26-h100.md).
std::vector<int64_t> lossChunkSizes(mlir::ModuleOp module);

// Sets the chunk of every loss of the module to `tokens`, or to all tokens if there are fewer.
void setLossChunk(mlir::ModuleOp module, int64_t tokens);

// Returns the report "loss_chunk" of a plan (docs/explain.md): the plan's chunk, and the candidates
// if there was a choice. `tokensPerStep` is the number of tokens per optimizer step on one device.
nlohmann::json lossChunkNotes(const LossChunk &taken, llvm::ArrayRef<LossChunk> candidates,
                              int64_t tokensPerStep);

} // namespace lmc
