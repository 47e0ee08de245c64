// Types of tensors and of variables.
#pragma once

#include "dialects/lm/Lm.h"

namespace lmc {

inline mlir::RankedTensorType tensorTypeOf(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType());
}
inline mlir::RankedTensorType tensorTypeOf(lm::VariableOp variable) {
  return mlir::cast<mlir::RankedTensorType>(variable.getType());
}

// Returns `type` with dimension `dim` changed to `size`.
inline mlir::RankedTensorType resized(mlir::RankedTensorType type, unsigned dim, int64_t size) {
  llvm::SmallVector<int64_t> shape(type.getShape());
  shape[dim] = size;
  return type.clone(shape);
}

} // namespace lmc
