// The scalar ops that every printer of code prints as a call of a C function, one row each.
#pragma once

#include "mlir/IR/Operation.h"

namespace lmc::codegen {

struct MathFunction {
  mlir::TypeID op;
  // The function of C's <math.h> and of CUDA for doubles; the one for floats ends in "f".
  llvm::StringRef name;
  // The expression of op(x) in checks on the host, with {0} for x; "" stands for std::NAME(x...).
  llvm::StringRef host;
  // True if the CPU's code calls libm. Otherwise LLVM has instructions for the op, or LowerKernels
  // expresses it by other ops, as it also does for exp, log and tanh of f32.
  bool callsLibrary;
};

// Returns the row of the op; null for an op that is not in the table.
const MathFunction *mathFunction(mlir::Operation *op);

} // namespace lmc::codegen
