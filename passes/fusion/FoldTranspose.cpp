// lm-fold-transpose: makes a cast to 8-bit floats and that of the transpose of its input one op,
// and SwiGLU, or an RMS norm, and its cast in blocks. Passes.td shows an example.
#include "passes/fusion/Halves.h"
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

// Replaces `cast` by one that computes what is cast, too. Returns true.
template <typename Made>
static bool castWhatIsComputed(Operation *cast, ValueRange read, ArrayRef<Operation *> unread) {
  OpBuilder b(cast);
  auto made = Made::create(b, cast->getLoc(), cast->getResultTypes(), read);
  setStep(made, cast);
  cast->replaceAllUsesWith(made->getResults());
  cast->erase();
  for (Operation *op : unread)
    if (op->use_empty())
      op->erase();
  return true;
}

// If only `cast` reads the SwiGLU of the halves of a matrix, makes both one op. Returns false if it
// does not.
template <typename Made, typename Cast> static bool foldSwiglu(Cast cast) {
  auto swiglu = cast.getX().template getDefiningOp<lm::SwigluOp>();
  lm::SplitOp split = swiglu ? halvesOf(swiglu.getGate(), swiglu.getUp()) : lm::SplitOp();
  return split && swiglu->hasOneUse() &&
         castWhatIsComputed<Made>(cast, split.getX(), {swiglu, split});
}

// Likewise for the gradient of SwiGLU for the matrix.
static bool foldSwigluGrad(lm::QuantizeRowsColumnsOp cast) {
  auto join = cast.getX().getDefiningOp<lm::JoinOp>();
  auto grad = join ? join.getParts().front().getDefiningOp<lm::SwigluGradOp>() : lm::SwigluGradOp();
  if (!grad || !join->hasOneUse() || joinOf(grad.getDgate(), grad.getDup()) != join)
    return false;
  lm::SplitOp split = halvesOf(grad.getGate(), grad.getUp());
  return split && castWhatIsComputed<lm::SwigluGradQuantizeOp>(cast, {grad.getDy(), split.getX()},
                                                               {join, grad, split});
}

// The most columns of a row that norm_quantize.cuh keeps in registers.
static constexpr int64_t kMostColumns = 16384;

// If only casts in blocks read an RMS norm, makes it a part of them: that of rows also computes the
// reciprocals of the rows, and that of columns reads them. Returns false if it does not.
static bool foldNorm(lm::RmsNormOp norm) {
  const RankedTensorType type = norm.getResult().getType();
  const int64_t columns = type.getDimSize(1);
  auto rowCast = lm::readerOf<lm::QuantizeRowsOp>(norm.getResult());
  auto columnCast = lm::readerOf<lm::QuantizeColumnsOp>(norm.getResult());
  const int casts = int(bool(rowCast)) + int(bool(columnCast));
  // What lm.dequantize makes is in no memory: the norm's kernel decodes it. A cast would need it
  // there.
  const bool isInMemory = !norm.getX().getDefiningOp<lm::DequantizeOp>();
  const auto weight =
      RankedTensorType::get(ArrayRef<int64_t>{columns}, Float32Type::get(norm.getContext()));
  if (casts == 0 || (casts == 2 && rowCast->getBlock() != columnCast->getBlock()) ||
      llvm::range_size(norm->getUsers()) != size_t(casts) || !isInMemory ||
      norm.getWeight().getType() != weight || columns % lm::kScaleBlock != 0 ||
      columns > kMostColumns)
    return false;
  const auto reciprocalsType = weight.clone(ArrayRef<int64_t>{type.getDimSize(0)});
  Operation *first = rowCast;
  if (!rowCast || (columnCast && columnCast->isBeforeInBlock(rowCast)))
    first = columnCast;
  OpBuilder b(first);
  Value reciprocals;
  if (rowCast) {
    auto made = lm::NormQuantizeRowsOp::create(b, rowCast.getLoc(), rowCast.getCodes().getType(),
                                               rowCast.getScales().getType(), reciprocalsType,
                                               norm.getX(), norm.getWeight(), norm.getEpsAttr());
    setStep(made, first);
    reciprocals = made.getReciprocals();
    rowCast.replaceAllUsesWith(ValueRange{made.getCodes(), made.getScales()});
    rowCast.erase();
  } else {
    reciprocals = lm::ReciprocalRmsOp::create(b, norm.getLoc(), reciprocalsType, norm.getX(),
                                              norm.getEpsAttr());
    setStep(reciprocals.getDefiningOp(), first);
  }
  if (columnCast)
    castWhatIsComputed<lm::NormQuantizeColumnsOp>(columnCast,
                                                  {norm.getX(), norm.getWeight(), reciprocals}, {});
  norm.erase();
  return true;
}

// Makes casts of rows and of columns of the same x, to the same format, one cast, and SwiGLU before
// a cast a part of it. Returns false if nothing changes.
static bool foldColumns(lm::QuantizeRowsOp cast) {
  for (Operation *reader : cast.getX().getUsers()) {
    auto other = dyn_cast<lm::QuantizeColumnsOp>(reader);
    if (!other || other->getBlock() != cast->getBlock() ||
        other.getCodes().getType().getElementType() != cast.getCodes().getType().getElementType())
      continue;
    Operation *first = cast->isBeforeInBlock(other) ? cast.getOperation() : other.getOperation();
    OpBuilder b(first);
    auto both = lm::QuantizeRowsColumnsOp::create(
        b, cast.getLoc(), cast.getCodes().getType(), cast.getScales().getType(),
        other.getCodes().getType(), other.getScales().getType(), cast.getX());
    setStep(both, first);
    cast.replaceAllUsesWith(ValueRange{both.getCodes(), both.getScales()});
    other.replaceAllUsesWith(ValueRange{both.getTransposed(), both.getTransposedScales()});
    cast.erase();
    other.erase();
    if (!foldSwiglu<lm::SwigluQuantizeOp>(both))
      foldSwigluGrad(both);
    return true;
  }
  return foldSwiglu<lm::SwigluQuantizeRowsOp>(cast);
}

// If only `tiles` reads a cast of f32 to bf16, lets it read what is cast. Returns false if not.
static bool foldRounding(lm::QuantizeTilesOp tiles) {
  auto rounding = tiles.getX().getDefiningOp<lm::CastOp>();
  if (!rounding || !rounding->hasOneUse() || !getElementTypeOrSelf(rounding.getX()).isF32())
    return false;
  tiles.getXMutable().assign(rounding.getX());
  tiles.setRounded(true);
  rounding.erase();
  return true;
}

// Makes a cast of tiles and the transposes of its codes and of its scales one cast. Returns false
// if there are no such transposes.
static bool foldTransposedTiles(lm::QuantizeTilesOp cast) {
  auto codes = lm::readerOf<lm::TransposeOp>(cast.getCodes());
  auto scales = lm::readerOf<lm::TransposeScalesOp>(cast.getScales());
  if (!codes || !scales)
    return false;
  OpBuilder b(cast);
  auto both = lm::QuantizeTilesBothOp::create(b, cast.getLoc(), cast.getCodes().getType(),
                                              cast.getScales().getType(), codes.getType(),
                                              scales.getType(), cast.getX(), cast.getRounded());
  setStep(both, cast);
  codes.replaceAllUsesWith(both.getTransposed());
  scales.replaceAllUsesWith(both.getTransposedScales());
  codes.erase();
  scales.erase();
  cast.replaceAllUsesWith(ValueRange{both.getCodes(), both.getScales()});
  cast.erase();
  return true;
}

static bool foldTiles(lm::QuantizeTilesOp cast) {
  const bool isFolded = foldRounding(cast);
  return foldTransposedTiles(cast) || isFolded;
}

namespace {
struct FoldTransposePass : lmc::impl::FoldTransposePassBase<FoldTransposePass> {
  void runOnOperation() override {
    SmallVector<lm::RmsNormOp> norms;
    getOperation().walk([&](lm::RmsNormOp op) { norms.push_back(op); });
    for (lm::RmsNormOp op : norms)
      numFolded += foldNorm(op);
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      auto transpose = dyn_cast<lm::TransposeOp>(op);
      if (isa<lm::QuantizeRowsOp, lm::QuantizeTilesOp>(op) ||
          (transpose && transpose.getX().getDefiningOp<lm::QuantizeOp>()))
        ops.push_back(op);
    });
    for (Operation *op : ops)
      numFolded += TypeSwitch<Operation *, bool>(op)
                       .Case([](lm::TransposeOp op) { return foldTranspose(op); })
                       .Case([](lm::QuantizeRowsOp op) { return foldColumns(op); })
                       .Case([](lm::QuantizeTilesOp op) { return foldTiles(op); });
    SmallVector<lm::QuantizeColumnsOp> columns; // those that are still alone
    getOperation().walk([&](lm::QuantizeColumnsOp op) { columns.push_back(op); });
    for (lm::QuantizeColumnsOp op : columns)
      numFolded += foldSwiglu<lm::SwigluQuantizeColumnsOp>(op);
  }
};
} // namespace
