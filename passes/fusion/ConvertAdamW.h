// lm.adamw and lm.adamw8bit as kernels: one kern.fusion each, which reads and writes every
// element of the state once.
#pragma once

#include "dialects/lm/Lm.h"

#include "mlir/IR/Builders.h"

namespace lmc {

// What takes the place of the op's results.
llvm::SmallVector<mlir::Value> convertAdamW(mlir::OpBuilder &b, lm::AdamWOp op);
llvm::SmallVector<mlir::Value> convertAdamW8bit(mlir::OpBuilder &b, lm::AdamW8bitOp op);

} // namespace lmc
