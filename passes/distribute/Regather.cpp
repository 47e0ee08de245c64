// dist-regather: clones the all-gather of a weight for each later use.
//
//   %w = dist.all_gather %p            %w = dist.all_gather %p
//   call @layer.forward(%w)      =>    call @layer.forward(%w)
//   call @layer.backward(%w)           %v = dist.all_gather %p
//                                      call @layer.backward(%v)
#include "passes/distribute/Passes.h"
#include "passes/distribute/Units.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"

namespace lmc {
#define GEN_PASS_DEF_REGATHERPASS
#include "passes/distribute/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// Returns true if `op` belongs to the backward pass, or calls a backward half.
static bool isBackwardUse(Operation *op, const SymbolTable &symbols) {
  if (auto step = dyn_cast<StepOpInterface>(op))
    return step.getBackward();
  auto call = dyn_cast<func::CallOp>(op);
  auto callee = call ? symbols.lookup<func::FuncOp>(call.getCallee()) : func::FuncOp();
  if (!callee || callee.isExternal())
    return false;
  return llvm::all_of(callee.getBody().front().without_terminator(), [](Operation &each) {
    auto step = dyn_cast<StepOpInterface>(each);
    return !step || step.getBackward();
  });
}

// Clones the all-gather and the views of its result for each reader except the first.
static void regather(dist::AllGatherOp gather, const SymbolTable &symbols) {
  const auto [views, readers] = usesOf(gather.getResult());
  Operation *load = gather.getInput().getDefiningOp();
  for (Operation *use : ArrayRef(readers).drop_front(readers.empty() ? 0 : 1)) {
    OpBuilder b(use);
    IRMapping mapping;
    if (load)
      b.clone(*load, mapping);
    Operation *again = b.clone(*gather, mapping);
    cast<StepOpInterface>(again).setBackward(isBackwardUse(use, symbols));
    for (Operation *view : views)
      if (auto step = dyn_cast<StepOpInterface>(b.clone(*view, mapping)))
        step.setBackward(isBackwardUse(use, symbols));
    for (OpOperand &operand : use->getOpOperands())
      operand.set(mapping.lookupOrDefault(operand.get()));
    // Erases cloned views that this reader does not read.
    for (Operation *view : llvm::reverse(views))
      if (Operation *made = mapping.lookup(view->getResult(0)).getDefiningOp(); made->use_empty())
        made->erase();
  }
  for (Operation *view : llvm::reverse(views))
    if (view->use_empty())
      view->erase();
}

namespace {
struct RegatherPass : lmc::impl::RegatherPassBase<RegatherPass> {
  using RegatherPassBase::RegatherPassBase;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    auto listed = getOperation()->getAttrOfType<DenseI64ArrayAttr>(kKeptWeights);
    auto isKept = [&](int64_t layer) {
      return listed ? llvm::is_contained(listed.asArrayRef(), layer) : layer >= 0 && layer < keep;
    };
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isPrivate() || function.isExternal())
        continue;
      SmallVector<dist::AllGatherOp> gathers(
          function.getBody().front().getOps<dist::AllGatherOp>());
      for (dist::AllGatherOp gather : gathers)
        if (gather.getInput().getDefiningOp<lm::LoadOp>() && !isKept(gather.getLayerIndex()))
          regather(gather, symbols);
    }
  }
};
} // namespace
