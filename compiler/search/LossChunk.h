// Chooses the number of tokens whose logits exist at one time, for memory.loss_chunk = "auto".
//
// The head and the loss are computed for one chunk of tokens after the other. Each chunk reads and
// writes the main gradient of the head's weights (f32 [vocabulary, hidden]) once. So with larger
// chunks fewer bytes move, but a chunk's logits take more memory.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/ArrayRef.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <vector>

namespace lmc {

// A number of tokens per chunk of the loss, and the memory and the time that it causes.
struct LossChunk {
  int64_t tokens = 0;            // tokens per chunk
  uint64_t logitsBytes = 0;      // bytes of a chunk's logits
  uint64_t headAndLossBytes = 0; // PlanMeasures::headAndLossBytes
  double seconds = 0;            // PlanMeasures::otherSeconds
};

// Returns the chunk size of a module's first loss, and the bytes of the logits of a chunk. `tokens`
// is 0 if the module has no loss. Only for modules before the fusion phase.
LossChunk lossChunkOf(mlir::ModuleOp module);

// Returns the candidates for the tokens per chunk of the loss, smallest first: powers of two from
// 256 up, and the whole micro-batch. Sizes with more than 4 GiB of logits per chunk, or with more
// than 128 chunks, are left out. The size that the module has is always a candidate. The list is
// empty if the module has no loss.
//
// Why 4 GiB are enough: they are the bf16 logits of 16384 tokens with a vocabulary of 131072. On an
// H100 the gradient of such a head (131072 x 2048) reaches 508 TFLOP/s with 1024 tokens per chunk
// and 697 with 4096 (bench/results/gpu-2026-11-26-h100.md).
std::vector<int64_t> lossChunkSizes(mlir::ModuleOp module);

// Sets the tokens per chunk of every loss to `tokens`, or to all tokens if there are fewer.
void setLossChunk(mlir::ModuleOp module, int64_t tokens);

// Returns the report "loss_chunk" of a plan (docs/explain.md). `tokensPerStep` is per optimizer
// step and device.
nlohmann::json lossChunkNotes(const LossChunk &taken, llvm::ArrayRef<LossChunk> candidates,
                              int64_t tokensPerStep);

} // namespace lmc
