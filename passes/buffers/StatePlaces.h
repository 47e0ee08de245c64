// Finds values that can lie in the bytes of variables, before the other values get buffers.
//
// A whole is a vector whose parts are all stored to variables. If these variables follow each other
// in one storage, the whole can be computed in their bytes, and the stores need no copies:
//
//   %0 = tensor.empty()                                  %0, %1, %2 and %sum lie at @w.grad
//   %1 = tensor.insert_slice %dw into %0[0] [64]
//   %2 = tensor.insert_slice %du into %1[64] [32]
//   %sum = dist.all_reduce %2 over @ranks replicate
//   lm.store %sum[0] [64], @w.grad
//   lm.store %sum[64] [32], @u.grad                      @u.grad follows @w.grad in the storage
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/StringMap.h"

#include <string>

namespace lmc {

// The bytes of a variable or storage from `offset` on.
struct StatePlace {
  std::string variable;
  int64_t offset = 0; // bytes
};

struct StatePlaces {
  // The place of each whole, and of all values from which the whole is computed in its place.
  llvm::DenseMap<mlir::Value, StatePlace> wholes;
  // The place of each value that is inserted into a whole. The key is the value before reshapes.
  llvm::DenseMap<mlir::Value, StatePlace> parts;
  // For each variable to which a part is stored: the variable's place in its storage.
  llvm::StringMap<StatePlace> variables;
};

// Returns the wholes of `function` that may lie in variables' bytes. No op may read the old
// contents of the variables after the first write to the whole.
StatePlaces findStatePlaces(mlir::func::FuncOp function, const mlir::SymbolTable &symbols);

// If `value` is a reshape of another value, returns that value, else `value`.
mlir::Value behindReshapes(mlir::Value value);

// Returns the operand to which `op` adds its result, or null if `op` does not accumulate.
mlir::Value accumulatedBy(mlir::Operation *op);

} // namespace lmc
