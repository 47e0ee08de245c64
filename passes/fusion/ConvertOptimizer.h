// Converts optimizer steps to kernels: to one kern.fusion each, which reads and writes every
// element of the state once.
#pragma once

#include "dialects/lm/Lm.h"

#include "mlir/IR/Builders.h"

namespace lmc {

// Returns the values that replace the op's results; empty for an optimizer without a kernel.
llvm::SmallVector<mlir::Value> convertOptimizer(mlir::OpBuilder &b, lm::OptimizerOpInterface op);

} // namespace lmc
