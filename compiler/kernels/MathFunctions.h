// The table of the scalar math ops that code generators print as a call of a C function.
#pragma once

#include "mlir/IR/Operation.h"

namespace lmc::codegen {

struct MathFunction {
  mlir::TypeID op;
  // The name of the f64 function in C's <math.h> and in CUDA. The f32 function has an "f" added.
  llvm::StringRef name;
  // The op as C++ text for checks on the host. {0} stands for x. "" stands for std::NAME(x).
  llvm::StringRef host;
  // True if CPU code calls libm for the op. Otherwise LLVM has instructions for it, or the compiler
  // pass kern-lower-kernels replaces it. This pass always replaces exp, log and tanh of f32.
  bool callsLibrary;
};

// Returns the entry of the op, or null if the table lacks it.
const MathFunction *mathFunction(mlir::Operation *op);

} // namespace lmc::codegen
