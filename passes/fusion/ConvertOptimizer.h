// Converts the ops of optimizer steps. Each function returns the values that replace the op's
// results.
#pragma once

#include "dialects/lm/Lm.h"

#include "mlir/IR/Builders.h"

namespace lmc {

// Converts a step to one kern.fusion, which reads and writes every element of the state once.
// Returns an empty vector if this optimizer has no kernel.
llvm::SmallVector<mlir::Value> convertOptimizer(mlir::OpBuilder &b, lm::OptimizerOpInterface op);

// Convert the ops of a step of Muon. The direction and the update become one kernel each. Scaling
// becomes one kernel per matrix. Each Newton-Schulz step of convertOrthogonalize() becomes three
// batches of matrix products and two kernels.
llvm::SmallVector<mlir::Value> convertMuonDirection(mlir::OpBuilder &b, lm::MuonDirectionOp op);
llvm::SmallVector<mlir::Value> convertOrthogonalize(mlir::OpBuilder &b, lm::OrthogonalizeOp op);
llvm::SmallVector<mlir::Value> convertScaleMatrices(mlir::OpBuilder &b, lm::ScaleMatricesOp op);
llvm::SmallVector<mlir::Value> convertMuonUpdate(mlir::OpBuilder &b, lm::MuonUpdateOp op);

} // namespace lmc
