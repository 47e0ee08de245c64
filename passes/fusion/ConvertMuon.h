// Converts the parts of a step of lm.muon.
#pragma once

#include "dialects/lm/Lm.h"

#include "mlir/IR/Builders.h"

namespace lmc {

// Each returns the values that replace the results of `op`. The direction and the update are one
// kernel each, and scaling is one for each matrix. Orthogonalizing a stack of matrices takes three
// batches of matrix products and two kernels for each Newton-Schulz step.
llvm::SmallVector<mlir::Value> convertMuonDirection(mlir::OpBuilder &b, lm::MuonDirectionOp op);
llvm::SmallVector<mlir::Value> convertOrthogonalize(mlir::OpBuilder &b, lm::OrthogonalizeOp op);
llvm::SmallVector<mlir::Value> convertScaleMatrices(mlir::OpBuilder &b, lm::ScaleMatricesOp op);
llvm::SmallVector<mlir::Value> convertMuonUpdate(mlir::OpBuilder &b, lm::MuonUpdateOp op);

} // namespace lmc
