// dist-reduce-gradients: sums the accumulated gradients of all ranks, in the function of the last
// micro-step.
//
//   lm.store %dw, @w.grad   =>   %g = dist.reduce_scatter %dw ...
//                                lm.store %g, @unit.0.grad
#include "passes/distribute/Passes.h"
#include "passes/distribute/Units.h"

#include "ground/plan/Names.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace lmc {
#define GEN_PASS_DEF_REDUCEGRADIENTSPASS
#include "passes/distribute/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {
struct ReduceGradientsPass : lmc::impl::ReduceGradientsPassBase<ReduceGradientsPass> {
  using ReduceGradientsPassBase::ReduceGradientsPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto units = module->getAttrOfType<ArrayAttr>(kUnitsToReduce);
    if (!units)
      return;
    module->removeAttr(kUnitsToReduce);
    SymbolTable symbols(module);
    auto function = symbols.lookup<func::FuncOp>(names::kMicroLast);
    if (!function)
      function = symbols.lookup<func::FuncOp>(names::kMicroFirst);
    if (!function) {
      module.emitOpError("has no micro-step; run lm-accumulate-gradients first");
      return signalPassFailure();
    }
    llvm::StringMap<lm::StoreOp> stores;
    for (auto store : function.getBody().front().getOps<lm::StoreOp>())
      stores[store.getVariable()] = store;
    const std::optional<Type> known = payloadType(payload, &getContext());
    if (!known) {
      module.emitError("payload must be f32, bf16 or f16, not '") << payload << "'";
      return signalPassFailure();
    }
    GradientReducer reducer(module, *known);
    OpBuilder b(&getContext());
    for (Attribute attribute : units) {
      const UnitGradients unit = UnitGradients::fromAttribute(attribute);
      SmallVector<Value> values;
      SmallVector<lm::StoreOp> own;
      Operation *last = nullptr;
      for (const std::string &member : unit.members) {
        lm::StoreOp store = stores.lookup(member);
        if (!store) {
          function.emitError("stores no gradient @") << member;
          return signalPassFailure();
        }
        values.push_back(store.getValue());
        own.push_back(store);
        if (!last || last->isBeforeInBlock(store))
          last = store;
      }
      b.setInsertionPointAfter(last);
      SmallVector<Value> sums = reducer.reduce(b, unit, values);
      // Stores the sums. This rank's unsummed gradients are not stored: nothing needs them.
      for (auto [index, sum] : llvm::enumerate(sums))
        lm::StoreOp::create(b, sum.getLoc(), sum,
                            unit.piece.empty() ? unit.members[index] : unit.piece);
      for (lm::StoreOp store : own)
        store.erase();
    }
  }
};
} // namespace
