// Counts the parameters and the work of a model. Both are sums over the ops of the model's graph.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include <cstdint>

namespace lmc {

struct ModelCounts {
  uint64_t parameters = 0; // elements of all parameters, tied weights counted once

  // Floating-point operations per token in the forward and the backward pass, without recompute, as
  // in appendix B of the PaLM paper, https://arxiv.org/abs/2204.02311. A weight of a matrix product
  // counts 6. A column of q counts 12 times the number of keys that a query sees. The causal number
  // uses the mean number of keys under the causal mask and the window. The full number uses all
  // keys. Both ignore a document mask, because it depends on the data.
  double flopsPerTokenCausal = 0;
  double flopsPerTokenFull = 0;

  // The minimum number of bytes per token that a forward and a backward pass move, without
  // recompute. Ops that are matrix products or attention are left out.
  double layerTrafficFloor = 0; // sum over all layers
  double headTrafficFloor = 0;  // sum over ops outside of layers: embedding, last norm, loss
};

// Counts the ops of @forward of a module that buildModel() made, and of the layers that it calls.
// Emits an error at an op for which no count is known.
mlir::FailureOr<ModelCounts> modelCounts(mlir::ModuleOp module);

} // namespace lmc
