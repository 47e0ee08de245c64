// The forward and backward halves that lm-autodiff makes of a layer, and what changes in them if
// some ops are recomputed.
//
// The forward half @NAME.forward of a layer @NAME returns the layer's results, then every value
// that the backward half reads. The backward half is @NAME.backward or @NAME.backward.accumulate.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/SetVector.h"

namespace lmc {

// Returns the layer whose forward half is `forward`, or null if `forward` is no forward half.
mlir::func::FuncOp layerOf(mlir::func::FuncOp forward, const mlir::SymbolTable &symbols);

// Returns the calls of layers' forward halves in `function`, from the first layer to the last.
llvm::SmallVector<mlir::func::CallOp> forwardCalls(mlir::func::FuncOp function,
                                                   const mlir::SymbolTable &symbols);

// Returns the call of the backward half that reads the values which `forwardCall` keeps, or null.
mlir::func::CallOp backwardCallOf(mlir::func::CallOp forwardCall, const mlir::SymbolTable &symbols);

// Returns the forward half of every layer of the model, from the first layer to the last. Emits an
// error unless all functions of the module call the same forward halves in the same order.
mlir::FailureOr<llvm::SmallVector<mlir::func::FuncOp>>
layersInOrder(mlir::ModuleOp module, const mlir::SymbolTable &symbols);

// Says which values a forward half keeps, and which ops the backward half recomputes.
struct RecomputePlan {
  llvm::SetVector<mlir::Value> kept;             // the layer's own results first
  llvm::SetVector<mlir::Operation *> recomputed; // in the order of the forward half
  llvm::SetVector<unsigned> arguments;           // numbers of the arguments that `recomputed` reads
};

// Returns the plan that recomputes the ops of `chosen` whose results the backward half needs. A
// view is recomputed if the viewed value is recomputed; otherwise it is kept. The layer's results
// are always kept, because the next layer reads them.
RecomputePlan planRecompute(mlir::func::FuncOp forward, unsigned layerResults,
                            llvm::ArrayRef<mlir::Operation *> chosen);

// Returns the number of bytes of the kept values. The layer's arguments and results do not count:
// the neighbouring layers keep them. A view counts all bytes of the value that it is a view of.
uint64_t keptBytes(mlir::func::FuncOp forward, unsigned layerResults, const RecomputePlan &plan);

// Returns the value that `value` is a view of, through any number of views, or `value` itself.
mlir::Value viewedValue(mlir::Value value);

} // namespace lmc
