// Questions about casts to 8-bit floats.
#pragma once

#include "dialects/lm/Lm.h"

namespace lmc::lm {

// Returns true if the scale of a cast comes from the largest value of the tensor itself.
bool hasOwnScale(QuantizeOp cast);

// Returns the first op of type `Op` that reads `value`, or null.
template <typename Op> Op readerOf(mlir::Value value) {
  for (mlir::Operation *user : value.getUsers())
    if (auto op = mlir::dyn_cast<Op>(user))
      return op;
  return {};
}

} // namespace lmc::lm
