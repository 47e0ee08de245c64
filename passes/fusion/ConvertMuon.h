// Converts the ops that make up one step of Muon.
#pragma once

#include "dialects/lm/Lm.h"

#include "mlir/IR/Builders.h"

namespace lmc {

// Each returns the values that replace the results of `op`. The direction and the update take one
// kernel each, scaling takes one per matrix. To orthogonalize a stack of matrices, each
// Newton-Schulz step takes three batches of matrix products and two kernels.
llvm::SmallVector<mlir::Value> convertMuonDirection(mlir::OpBuilder &b, lm::MuonDirectionOp op);
llvm::SmallVector<mlir::Value> convertOrthogonalize(mlir::OpBuilder &b, lm::OrthogonalizeOp op);
llvm::SmallVector<mlir::Value> convertScaleMatrices(mlir::OpBuilder &b, lm::ScaleMatricesOp op);
llvm::SmallVector<mlir::Value> convertMuonUpdate(mlir::OpBuilder &b, lm::MuonUpdateOp op);

} // namespace lmc
