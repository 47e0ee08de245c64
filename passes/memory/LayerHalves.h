// The forward and backward halves that lm-autodiff makes of a layer, and the effect of recomputing
// some ops on them.
//
// For a layer @NAME, @NAME.forward returns the layer's results, followed by every value that the
// layer's backward half reads. The backward half is @NAME.backward or its variant
// @NAME.backward.accumulate.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/SetVector.h"

namespace lmc {

// Returns the layer whose forward half is `forward`; null for any other function.
mlir::func::FuncOp layerOf(mlir::func::FuncOp forward, const mlir::SymbolTable &symbols);

// Returns the calls of forward halves in `function`, from the first layer to the last.
llvm::SmallVector<mlir::func::CallOp> forwardCalls(mlir::func::FuncOp function,
                                                   const mlir::SymbolTable &symbols);

// Returns the call of the backward half that reads the values kept by `forwardCall`; null if there
// is none.
mlir::func::CallOp backwardCallOf(mlir::func::CallOp forwardCall, const mlir::SymbolTable &symbols);

// Returns the forward half of every layer of the model, from the first to the last. Fails if two
// functions of the module call different ones.
mlir::FailureOr<llvm::SmallVector<mlir::func::FuncOp>>
layersInOrder(mlir::ModuleOp module, const mlir::SymbolTable &symbols);

// The values that a forward half keeps and the ops that the backward half recomputes.
struct RecomputePlan {
  llvm::SetVector<mlir::Value> kept;             // the layer's own results first
  llvm::SetVector<mlir::Operation *> recomputed; // in the order of the forward half
  llvm::SetVector<unsigned> arguments;           // of the forward half that the recomputed ops read
};

// Returns the plan in which exactly those ops of `chosen` are recomputed that the backward half
// needs. A view is treated like the value that it is a view of, whether it is chosen or not; of a
// kept value the view itself is kept. Results of the layer count as present, because the next layer
// reads them.
RecomputePlan planRecompute(mlir::func::FuncOp forward, unsigned layerResults,
                            llvm::ArrayRef<mlir::Operation *> chosen);

// Returns the bytes that the kept values hold between the forward and the backward pass, without
// the layer's arguments and results, which the neighbouring layers hold. A view holds all bytes of
// the value that it is a view of.
uint64_t keptBytes(mlir::func::FuncOp forward, unsigned layerResults, const RecomputePlan &plan);

// Returns the value whose bytes `value` is a view of.
mlir::Value viewedValue(mlir::Value value);

} // namespace lmc
