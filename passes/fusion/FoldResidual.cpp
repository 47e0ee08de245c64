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

// If only `add` reads the result of a linear layer, makes the layer's product add the other
// operand. That operand must be computed before the product.
template <typename Linear> static bool fold(lm::AddOp add) {
  for (auto [value, other] : {std::pair(add.getRhs(), add.getLhs()),
                              std::pair(add.getLhs(), add.getRhs())}) {
    auto linear = value.template getDefiningOp<Linear>();
    if (!linear || !value.hasOneUse() || linear.getResidual() ||
        linear->getBlock() != add->getBlock() || !DominanceInfo().properlyDominates(other, linear))
      continue;
    linear.getResidualMutable().assign(other);
    add.replaceAllUsesWith(linear.getResult());
    add.erase();
    return true;
  }
  return false;
}

namespace {
struct FoldResidualPass : lmc::impl::FoldResidualPassBase<FoldResidualPass> {
  void runOnOperation() override {
    SmallVector<lm::AddOp> adds;
    getOperation().walk([&](lm::AddOp add) { adds.push_back(add); });
    for (lm::AddOp add : adds)
      if (fold<lm::LinearOp>(add) || fold<lm::ScaledMatmulOp>(add))
        ++numFolded;
  }
};
} // namespace
