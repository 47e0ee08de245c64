// The size and the work of a model, as sums over the ops of its graph.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <cstdint>

namespace lmc {

struct ModelCounts {
  uint64_t parameters = 0; // elements of all parameters; tied weights are one parameter

  // Floating-point operations per token of the forward and backward pass, without recompute: 6 for
  // each weight of a matrix product, and 12 times the keys that a query sees for each column of q,
  // as in appendix B of the PaLM paper, https://arxiv.org/abs/2204.02311. A document mask changes
  // neither number, because what it hides depends on the data.
  double flopsPerTokenCausal = 0; // mean number of visible keys, under the window if there is one
  double flopsPerTokenFull = 0;   // as if nothing were masked: all keys of the sequence

  // The minimum bytes per token that a forward and a backward pass move in ops other than matrix
  // products and attention, without recompute. The traffic of fused kernels is compared with it.
  double layerTrafficFloor = 0; // of all layers
  double headTrafficFloor = 0;  // of what is outside of layers: embedding, last norm, loss
};

// Counts the function `forward` of `module`, as built by buildModel, and the layers that it calls.
// Emits an error at an op that has no count.
mlir::FailureOr<ModelCounts> modelCounts(mlir::ModuleOp module);

} // namespace lmc
