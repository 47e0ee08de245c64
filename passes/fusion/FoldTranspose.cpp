// lm-fold-transpose: makes a cast to 8-bit floats and that of the transpose of its input one op.
// Passes.td shows an example.
#include "passes/fusion/Passes.h"

#include "dialects/interfaces/Step.h"
#include "dialects/lm/EightBits.h"

#include "llvm/ADT/TypeSwitch.h"

namespace lmc {
#define GEN_PASS_DEF_FOLDTRANSPOSEPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// Makes a cast with one scale and the transpose of its codes one op. Returns false if it does not.
static bool foldTranspose(lm::TransposeOp transpose) {
  auto cast = transpose.getX().getDefiningOp<lm::QuantizeOp>();
  // A tensor whose own largest value gives the scale is in memory, so that a command can read it.
  if (!cast || !lm::hasOwnScale(cast) || cast->hasOneUse())
    return false;
  OpBuilder b(cast);
  auto both = lm::QuantizeTransposedOp::create(b, cast.getLoc(), cast.getType(),
                                               transpose.getType(), cast.getX(), cast.getScale());
  setStep(both, cast);
  transpose.replaceAllUsesWith(both.getTransposed());
  transpose.erase();
  cast.replaceAllUsesWith(both.getCodes());
  cast.erase();
  return true;
}

// Makes a cast in blocks and one of the transpose of the same x, to the same format, a `Both`.
// Returns false if there is none.
template <typename Both, typename Cast, typename Other> static bool foldCasts(Cast cast) {
  for (Operation *reader : cast.getX().getUsers()) {
    auto other = dyn_cast<Other>(reader);
    if (!other || other->getBlock() != cast->getBlock() ||
        other.getCodes().getType().getElementType() != cast.getCodes().getType().getElementType())
      continue;
    Operation *first = cast->isBeforeInBlock(other) ? cast.getOperation() : other.getOperation();
    OpBuilder b(first);
    auto both =
        Both::create(b, cast.getLoc(), cast.getCodes().getType(), cast.getScales().getType(),
                     other.getCodes().getType(), other.getScales().getType(), cast.getX());
    setStep(both, first);
    cast.replaceAllUsesWith(ValueRange{both.getCodes(), both.getScales()});
    other.replaceAllUsesWith(ValueRange{both.getTransposed(), both.getTransposedScales()});
    cast.erase();
    other.erase();
    return true;
  }
  return false;
}

namespace {
struct FoldTransposePass : lmc::impl::FoldTransposePassBase<FoldTransposePass> {
  void runOnOperation() override {
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<lm::TransposeOp, lm::QuantizeRowsOp, lm::QuantizeTilesOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops)
      numFolded += TypeSwitch<Operation *, bool>(op)
                       .Case([](lm::TransposeOp op) { return foldTranspose(op); })
                       .Case([](lm::QuantizeRowsOp op) {
                         return foldCasts<lm::QuantizeRowsColumnsOp, lm::QuantizeRowsOp,
                                          lm::QuantizeColumnsOp>(op);
                       })
                       .Case([](lm::QuantizeTilesOp op) {
                         return foldCasts<lm::QuantizeTilesBothOp, lm::QuantizeTilesOp,
                                          lm::QuantizeTilesTransposedOp>(op);
                       });
  }
};
} // namespace
