// The most bytes that a block's values hold at once, for comparing orders of its ops.
//
// A model of what buffer placement will find: views and accumulators share the bytes of what
// they come from, a kernel writes its results over inputs of the same size that die there,
// and state (what lm.load gives) is not counted.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/DenseSet.h"

#include <vector>

namespace lmc {

// Ops that run as one, in the order in which steps run.
using Step = llvm::SmallVector<mlir::Operation *, 2>;

class LiveBytes {
public:
  // Arguments to which every call passes state are state too.
  explicit LiveBytes(mlir::func::FuncOp function);

  // Bytes that are live at each of `steps`, which have every op of the function's body once,
  // views and the return included. A value that is made and read in one step only takes none.
  std::vector<uint64_t> bytesAt(llvm::ArrayRef<Step> steps) const;

  uint64_t peak(llvm::ArrayRef<Step> steps) const;

private:
  mlir::Block &block;
  llvm::DenseSet<mlir::Value> stateArguments;
};

} // namespace lmc
