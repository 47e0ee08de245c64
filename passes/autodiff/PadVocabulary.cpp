// lm-pad-vocabulary: pads the rows of the head's weights with zeros to a multiple that suits tensor
// cores. Passes.td shows an example.
#include "passes/autodiff/Passes.h"

#include "dialects/lm/Lm.h"
#include "dialects/lm/TensorTypes.h"

#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

namespace lmc {
#define GEN_PASS_DEF_PADVOCABULARYPASS
#include "passes/autodiff/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// Makes `op` ignore the padding of its weights: all rows from index `classes` on.
static LogicalResult ignorePadding(Operation *op, int64_t classes, int64_t rows) {
  if (auto loss = dyn_cast<lm::LinearCrossEntropyOp>(op)) {
    loss.setClasses(classes);
    return success();
  }
  if (isa<lm::EmbeddingOp>(op)) // token ids are below `classes`
    return success();
  auto linear = dyn_cast<lm::LinearOp>(op);
  if (!linear || linear.getBias())
    return op->emitOpError("reads the head's weights, and lm-pad-vocabulary does not know how to "
                           "ignore the rows that it adds to them");
  OpBuilder b(op->getContext());
  b.setInsertionPointAfter(op);
  auto logits = cast<RankedTensorType>(linear.getType());
  const int64_t tokens = logits.getDimSize(0);
  linear.getResult().setType(logits.clone({tokens, rows}));
  auto split = lm::SplitOp::create(
      b, op->getLoc(), {logits, logits.clone({tokens, rows - classes})}, linear.getResult());
  linear.getResult().replaceAllUsesExcept(split.getResult(0), split);
  return success();
}

namespace {
struct PadVocabularyPass : lmc::impl::PadVocabularyPassBase<PadVocabularyPass> {
  using PadVocabularyPassBase::PadVocabularyPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (multiple < 1) {
      module.emitError("needs a multiple of at least 1, not ") << multiple.getValue();
      return signalPassFailure();
    }
    SymbolTable symbols(module);
    SetVector<lm::VariableOp> heads; // parameters of heads
    WalkResult found = module.walk([&](lm::LinearCrossEntropyOp loss) {
      auto load = loss.getWeight().getDefiningOp<lm::LoadOp>();
      if (!load) {
        loss.emitOpError("has weights that no lm.load reads");
        return WalkResult::interrupt();
      }
      heads.insert(parameterOf(load, symbols));
      return WalkResult::advance();
    });
    if (found.wasInterrupted())
      return signalPassFailure();
    for (lm::VariableOp head : heads)
      if (failed(pad(head, symbols)))
        return signalPassFailure();
  }

private:
  LogicalResult pad(lm::VariableOp head, const SymbolTable &symbols) {
    const int64_t classes = tensorTypeOf(head).getDimSize(0);
    const int64_t rows = int64_t(llvm::alignTo(uint64_t(classes), uint64_t(multiple.getValue())));
    if (rows == classes)
      return success();
    if (failed(padParameter(head, 0, rows)))
      return failure();
    SmallVector<lm::LoadOp> loads;
    getOperation().walk([&](lm::LoadOp load) {
      if (parameterOf(load, symbols) == head)
        loads.push_back(load);
    });
    for (lm::LoadOp load : loads) {
      load.getResult().setType(resized(load.getType(), 0, rows));
      for (Operation *user : llvm::make_early_inc_range(load->getUsers()))
        if (failed(ignorePadding(user, classes, rows)))
          return failure();
    }
    numRows += unsigned(rows - classes);
    return success();
  }
};
} // namespace
