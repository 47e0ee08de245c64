// kern-inline-layers: replaces each call of a layer by the layer's body.
//
//   %y = call @layer(%x, ...) {lm.layer = 3} loc("layers.3")
//   =>
//   the ops of @layer, each with `layer = 3` and located at "layers.3/..."
#include "passes/schedule/Passes.h"

#include "dialects/kern/Kern.h"
#include "dialects/lm/Lm.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace lmc {
#define GEN_PASS_DEF_INLINELAYERSPASS
#include "passes/schedule/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// Joins two locations: "layers.3" and "mlp" give "layers.3/mlp".
static Location nest(Location outer, Location inner) {
  auto outerName = dyn_cast<NameLoc>(outer), innerName = dyn_cast<NameLoc>(inner);
  if (!outerName)
    return inner;
  if (!innerName)
    return outer;
  return NameLoc::get(StringAttr::get(outer.getContext(), outerName.getName().getValue() + "/" +
                                                              innerName.getName().getValue()));
}

namespace {
struct InlineLayersPass : lmc::impl::InlineLayersPassBase<InlineLayersPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    OpBuilder b(module);
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function.isPrivate())
        continue;
      SmallVector<func::CallOp> calls(function.getBody().front().getOps<func::CallOp>());
      for (func::CallOp call : calls) {
        auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
        if (!callee || callee.isExternal()) {
          call.emitOpError("calls ") << call.getCallee() << ", which has no body";
          return signalPassFailure();
        }
        IRMapping mapping;
        mapping.map(callee.getArguments(), call.getOperands());
        b.setInsertionPoint(call);
        Block &body = callee.getBody().front();
        auto layer = call->getAttrOfType<IntegerAttr>(lm::kLayer);
        for (Operation &op : body.without_terminator()) {
          if (isa<func::CallOp>(op)) {
            op.emitOpError("nests layers, which kern-inline-layers does not expect");
            return signalPassFailure();
          }
          Operation *inlined = b.clone(op, mapping);
          inlined->setLoc(nest(call.getLoc(), op.getLoc()));
          if (auto step = dyn_cast<StepOpInterface>(inlined); step && layer)
            step.setLayerIndex(layer.getInt());
        }
        SmallVector<Value> results;
        for (Value value : body.getTerminator()->getOperands())
          results.push_back(mapping.lookup(value));
        call.replaceAllUsesWith(results);
        call.erase();
      }
      // Erases ops of a layer whose results the function does not use.
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (isOpTriviallyDead(&op))
          op.erase();
    }
    for (auto function : llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (function.isPrivate())
        symbols.erase(function);
  }
};
} // namespace
