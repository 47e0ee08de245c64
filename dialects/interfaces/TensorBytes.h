// How tensors lie in memory.
#pragma once

#include "mlir/IR/BuiltinTypes.h"

namespace lmc {

// Returns the size in bytes of a dense tensor with a static shape.
inline uint64_t byteSize(mlir::RankedTensorType type) {
  return uint64_t(type.getNumElements()) * type.getElementTypeBitWidth() / 8;
}

// Returns true for the 8-bit floats that factors of matrix products may have.
inline bool isEightBits(mlir::Type element) {
  return mlir::isa<mlir::Float8E4M3FNType, mlir::Float8E5M2Type>(element);
}

} // namespace lmc
