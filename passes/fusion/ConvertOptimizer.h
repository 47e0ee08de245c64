// Optimizer steps as kernels: one kern.fusion each, which reads and writes every element of the
// state once.
#pragma once

#include "dialects/lm/Lm.h"

#include "mlir/IR/Builders.h"

namespace lmc {

// The values that take the place of the op's results; none for an optimizer that has no kernel.
llvm::SmallVector<mlir::Value> convertOptimizer(mlir::OpBuilder &b, lm::OptimizerOpInterface op);

} // namespace lmc
