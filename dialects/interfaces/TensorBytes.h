// The sizes of tensors in memory, in bytes.
#pragma once

#include "mlir/IR/BuiltinTypes.h"

namespace lmc {

// Returns the size in bytes of a dense tensor with a static shape.
inline uint64_t byteSize(mlir::RankedTensorType type) {
  return uint64_t(type.getNumElements()) * type.getElementTypeBitWidth() / 8;
}

} // namespace lmc
