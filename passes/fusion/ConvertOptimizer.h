// Converts each optimizer step to one kern.fusion, which reads and writes every element of the
// state once.
#pragma once

#include "dialects/lm/Lm.h"

#include "mlir/IR/Builders.h"

namespace lmc {

// Returns the values that replace the results of `op`, or nothing if this optimizer has no kernel.
llvm::SmallVector<mlir::Value> convertOptimizer(mlir::OpBuilder &b, lm::OptimizerOpInterface op);

} // namespace lmc
