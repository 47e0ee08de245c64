// The scalar ops that every printer of code writes as a call of a C function, one row each.
#pragma once

#include "mlir/IR/Operation.h"

namespace lmc::codegen {

struct MathFunction {
  mlir::TypeID op;
  // The function of C's <math.h> or of CUDA for doubles; that for floats ends in "f".
  llvm::StringRef name;
  // What a check on the host writes for op(x), with {0} for x; "": std::NAME(x...).
  llvm::StringRef host;
  // The CPU's code calls libm. Otherwise LLVM has instructions for the op, or LowerKernels writes
  // it with other ops; it does that for exp, log and tanh of f32 too.
  bool callsLibrary;
};

// The row of the op; null for ops that are no function of that table.
const MathFunction *mathFunction(mlir::Operation *op);

} // namespace lmc::codegen
