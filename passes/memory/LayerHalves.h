// The halves that lm-autodiff makes of a layer, and what recomputing ops means for them.
//
// Of a layer @NAME, @NAME.forward returns the layer's results and then every value that its
// backward half reads: @NAME.backward, or the variant @NAME.backward.accumulate.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/SetVector.h"

namespace lmc {

// The layer whose forward half `forward` is; null for other functions.
mlir::func::FuncOp layerOf(mlir::func::FuncOp forward, const mlir::SymbolTable &symbols);

// The calls of forward halves in `function`, first layer to last.
llvm::SmallVector<mlir::func::CallOp> forwardCalls(mlir::func::FuncOp function,
                                                   const mlir::SymbolTable &symbols);

// The backward half that reads what `forwardCall` keeps; null when none does.
mlir::func::CallOp backwardCallOf(mlir::func::CallOp forwardCall, const mlir::SymbolTable &symbols);

// The forward half of every layer of the model, first to last. Fails when two functions of
// the module do not agree on them.
mlir::FailureOr<llvm::SmallVector<mlir::func::FuncOp>>
layersInOrder(mlir::ModuleOp module, const mlir::SymbolTable &symbols);

// What a forward half keeps, and what the backward half runs again.
struct RecomputePlan {
  llvm::SetVector<mlir::Value> kept;             // the layer's own results first
  llvm::SetVector<mlir::Operation *> recomputed; // in the order of the forward half
  llvm::SetVector<unsigned> arguments;           // of the forward half, read by those ops
};

// Of the ops in `chosen` those that the backward half needs are recomputed, the others not.
// Views follow what they are views of, chosen or not: a view of a kept value is kept as the
// view. A layer's results are at hand: they are what the next layer reads.
RecomputePlan planRecompute(mlir::func::FuncOp forward, unsigned layerResults,
                            llvm::ArrayRef<mlir::Operation *> chosen);

// Bytes that the kept values hold from the forward to the backward pass, without the layer's
// arguments and results, which its neighbours hold. A view holds all of what it is a view of.
uint64_t keptBytes(mlir::func::FuncOp forward, unsigned layerResults, const RecomputePlan &plan);

// The value whose bytes `value` is a view of.
mlir::Value viewedValue(mlir::Value value);

} // namespace lmc
