// Computes the live bytes of a block's values, to compare different orders of its ops.
//
// This is a model of what buffer assignment will do. Views and accumulators share the bytes of
// their operands. A kernel writes its results over inputs of the same size that die at the kernel.
// State (results of lm.load) is not counted.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/DenseSet.h"

#include <vector>

namespace lmc {

// Ops that run as one command. Steps run one after the other.
using Step = llvm::SmallVector<mlir::Operation *, 2>;

class LiveBytes {
public:
  // An argument of `function` counts as state if every call passes state for it.
  explicit LiveBytes(mlir::func::FuncOp function);

  // Returns the live bytes at each of `steps`. Each op of the function's body must be in exactly
  // one step. A value that only one step writes and reads takes no bytes.
  std::vector<uint64_t> bytesAt(llvm::ArrayRef<Step> steps) const;

private:
  mlir::Block &block;
  llvm::DenseSet<mlir::Value> stateArguments;
};

} // namespace lmc
