// The halves of a matrix that SwiGLU multiplies.
#pragma once

#include "dialects/lm/Lm.h"

namespace lmc {

// Returns the lm.split that divides a matrix into the halves `gate` and `up`, or null.
lm::SplitOp halvesOf(mlir::Value gate, mlir::Value up);

// Returns the lm.join of `first` and `second` if it is the only op that reads them, or null.
lm::JoinOp joinOf(mlir::Value first, mlir::Value second);

} // namespace lmc
