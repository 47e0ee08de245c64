// lm-fold-transpose: makes a cast to 8-bit floats and the transpose of its result one op. Passes.td
// shows an example.
#include "passes/fusion/Passes.h"

#include "dialects/interfaces/Step.h"
#include "dialects/lm/EightBits.h"

namespace lmc {
#define GEN_PASS_DEF_FOLDTRANSPOSEPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {
struct FoldTransposePass : lmc::impl::FoldTransposePassBase<FoldTransposePass> {
  void runOnOperation() override {
    SmallVector<lm::TransposeOp> transposes;
    getOperation().walk([&](lm::TransposeOp transpose) { transposes.push_back(transpose); });
    for (lm::TransposeOp transpose : transposes) {
      auto cast = transpose.getX().getDefiningOp<lm::QuantizeOp>();
      // A tensor whose own largest value gives the scale is in memory, so that a command can read it.
      if (!cast || !lm::hasOwnScale(cast) || cast->hasOneUse())
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
