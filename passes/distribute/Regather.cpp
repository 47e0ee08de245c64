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

#include "llvm/ADT/SetVector.h"

namespace lmc {
#define GEN_PASS_DEF_REGATHERPASS
#include "passes/distribute/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// Returns true if `op` computes a part of the backward pass.
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

// Collects the views of `value` and the ops that read the value or one of its views.
static void collect(Value value, SetVector<Operation *> &views, SetVector<Operation *> &readers) {
  for (Operation *user : value.getUsers()) {
    if (!movesElements(user)) {
      readers.insert(user);
      continue;
    }
    if (views.insert(user))
      collect(user->getResult(0), views, readers);
  }
}

// Clones the all-gather, with its views, for each op but the first that reads it.
static void regather(dist::AllGatherOp gather, const SymbolTable &symbols) {
  SetVector<Operation *> views, readers;
  collect(gather.getResult(), views, readers);
  SmallVector<Operation *> uses = readers.takeVector();
  llvm::sort(uses, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  SmallVector<Operation *> ordered = views.takeVector();
  llvm::sort(ordered, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  Operation *load = gather.getInput().getDefiningOp();
  for (Operation *use : ArrayRef(uses).drop_front(uses.empty() ? 0 : 1)) {
    OpBuilder b(use);
    IRMapping mapping;
    if (load)
      b.clone(*load, mapping);
    Operation *again = b.clone(*gather, mapping);
    cast<StepOpInterface>(again).setBackward(isBackwardUse(use, symbols));
    for (Operation *view : ordered)
      b.clone(*view, mapping);
    for (OpOperand &operand : use->getOpOperands())
      operand.set(mapping.lookupOrDefault(operand.get()));
    // Removes views that this use does not read.
    for (Operation *view : llvm::reverse(ordered))
      if (Operation *made = mapping.lookup(view->getResult(0)).getDefiningOp(); made->use_empty())
        made->erase();
  }
  for (Operation *view : llvm::reverse(ordered))
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
