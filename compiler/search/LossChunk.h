// Chooses the number of tokens whose logits exist at one time, for memory.loss_chunk = "auto".
//
// The head's products and the loss are computed for one chunk of tokens after the other. Each chunk
// reads and writes the main gradient of the head's weights (f32 [vocabulary, hidden]) once. So
// larger chunks move fewer bytes, but their logits take more memory.
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

// Returns the candidates for the loss of `module`, in rising order: the module's own chunk, the
// powers of two from 256 tokens up, and the whole micro-batch. Chunks with more than 4 GiB of
// logits are left out, and so are those that would make more than 128 chunks. The module's own
// chunk always stays. Returns nothing if the module has no loss.
//
// Larger chunks gain little: 4 GiB are the bf16 logits of 16384 tokens with a vocabulary of 131072.
// On an H100 the gradient of such a head (131072 x 2048) reaches 508 TFLOP/s from 1024 tokens and
// 697 from 4096 (bench/results/gpu-2026-11-26-h100.md).
std::vector<int64_t> lossChunkSizes(mlir::ModuleOp module);

// Sets the chunk of every loss of the module to `tokens`, or to all tokens if there are fewer.
void setLossChunk(mlir::ModuleOp module, int64_t tokens);

// Returns the report "loss_chunk" of a plan (docs/explain.md). `tokensPerStep` is the number of
// tokens per optimizer step on one device.
nlohmann::json lossChunkNotes(const LossChunk &taken, llvm::ArrayRef<LossChunk> candidates,
                              int64_t tokensPerStep);

} // namespace lmc
