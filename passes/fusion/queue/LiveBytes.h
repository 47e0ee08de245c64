// Computes the number of live bytes at each step of a block, to compare orders of its ops.
//
// This is a model of what buffer assignment will do. Views and accumulators share the bytes of
// their operands. A result takes over the bytes of an input that no later kernel reads, if both
// have the same size. State (results of lm.load) is not counted.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/DenseSet.h"

#include <vector>

namespace lmc {

// Ops that run as one command. Steps run one after the other.
using Step = llvm::SmallVector<mlir::Operation *, 2>;

class LiveBytes {
public:
  // An argument of `function` is state, too, if every call passes state to it.
  explicit LiveBytes(mlir::func::FuncOp function);

  // Returns the number of live bytes at each of `steps`. Each op of the function's body must be in
  // exactly one step. A value that is read only in the step that writes it counts 0 bytes.
  std::vector<uint64_t> bytesAt(llvm::ArrayRef<Step> steps) const;

private:
  mlir::Block &block;
  llvm::DenseSet<mlir::Value> stateArguments;
};

} // namespace lmc
