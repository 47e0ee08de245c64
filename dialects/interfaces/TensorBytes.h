// The bytes that tensors take in memory.
#pragma once

#include "mlir/IR/BuiltinTypes.h"

namespace lmc {

// Returns the bytes of a dense tensor with a static shape.
inline uint64_t byteSize(mlir::RankedTensorType type) {
  return uint64_t(type.getNumElements()) * type.getElementTypeBitWidth() / 8;
}

} // namespace lmc
