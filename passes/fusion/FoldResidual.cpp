// lm-fold-residual: makes the matrix product of a linear layer add the residual. Passes.td shows an
// example.
#include "passes/fusion/Passes.h"

#include "dialects/lm/Lm.h"

#include "mlir/IR/Dominance.h"

namespace lmc {
#define GEN_PASS_DEF_FOLDRESIDUALPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// Returns the linear layer whose result only `add` reads, or null. Sets `residual` to the other
// operand of `add`. That operand must be computed before the linear layer.
static lm::LinearOp productOf(lm::AddOp add, Value &residual) {
  for (auto [value, other] : {std::pair(add.getRhs(), add.getLhs()),
                              std::pair(add.getLhs(), add.getRhs())}) {
    auto linear = value.getDefiningOp<lm::LinearOp>();
    if (linear && value.hasOneUse() && !linear.getResidual() &&
        linear->getBlock() == add->getBlock() && DominanceInfo().properlyDominates(other, linear)) {
      residual = other;
      return linear;
    }
  }
  return {};
}

namespace {
struct FoldResidualPass : lmc::impl::FoldResidualPassBase<FoldResidualPass> {
  void runOnOperation() override {
    SmallVector<lm::AddOp> adds;
    getOperation().walk([&](lm::AddOp add) { adds.push_back(add); });
    for (lm::AddOp add : adds) {
      Value residual;
      lm::LinearOp linear = productOf(add, residual);
      if (!linear)
        continue;
      linear.getResidualMutable().assign(residual);
      add.replaceAllUsesWith(linear.getResult());
      add.erase();
      ++numFolded;
    }
  }
};
} // namespace
