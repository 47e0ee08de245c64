// The peak of the bytes of a block's values, for comparing orders of its ops.
//
// This is a model of the result of buffer assignment. Views and accumulators share the bytes of
// their operands; a kernel writes its results over inputs of the same size that die there; state
// (results of lm.load) is not counted.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/DenseSet.h"

#include <vector>

namespace lmc {

// Ops that run as one. Steps run one after the other.
using Step = llvm::SmallVector<mlir::Operation *, 2>;

class LiveBytes {
public:
  // An argument to which every call passes state counts as state.
  explicit LiveBytes(mlir::func::FuncOp function);

  // Returns the live bytes at each of `steps`. The steps contain every op of the function's body
  // once, including views and the return. A value that is written and read within one step takes no
  // bytes.
  std::vector<uint64_t> bytesAt(llvm::ArrayRef<Step> steps) const;

  uint64_t peak(llvm::ArrayRef<Step> steps) const;

private:
  mlir::Block &block;
  llvm::DenseSet<mlir::Value> stateArguments;
};

} // namespace lmc
