// lm-fold-transpose: makes a cast to 8-bit floats and the transpose of its result one op. Passes.td
// shows an example.
#include "passes/fusion/Passes.h"

#include "dialects/interfaces/Step.h"
#include "dialects/lm/Lm.h"

namespace lmc {
#define GEN_PASS_DEF_FOLDTRANSPOSEPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// Returns true if the scale of a cast comes from the tensor itself, which is then in memory.
static bool hasOwnScale(lm::QuantizeOp cast) {
  auto scale = cast.getScale().getDefiningOp<lm::Fp8ScaleOp>();
  auto max = scale ? scale.getMax().getDefiningOp<lm::MaxAbsOp>() : lm::MaxAbsOp();
  return max && max.getX() == cast.getX();
}

namespace {
struct FoldTransposePass : lmc::impl::FoldTransposePassBase<FoldTransposePass> {
  void runOnOperation() override {
    SmallVector<lm::TransposeOp> transposes;
    getOperation().walk([&](lm::TransposeOp transpose) { transposes.push_back(transpose); });
    for (lm::TransposeOp transpose : transposes) {
      auto cast = transpose.getX().getDefiningOp<lm::QuantizeOp>();
      if (!cast || !hasOwnScale(cast) || cast->hasOneUse())
        continue;
      OpBuilder b(cast);
      auto both = lm::QuantizeTransposedOp::create(
          b, cast.getLoc(), cast.getType(), transpose.getType(), cast.getX(), cast.getScale());
      setStep(both, cast);
      transpose.replaceAllUsesWith(both.getTransposed());
      transpose.erase();
      cast.replaceAllUsesWith(both.getCodes());
      cast.erase();
      ++numFolded;
    }
  }
};
} // namespace
