// The vector-Jacobian products of the lm ops, each derived by hand.
#include "dialects/lm/Lm.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace lmc;
using namespace lmc::lm;

// Returns the dtype of main gradients and other sums over tokens: f64 for f64 values, else f32.
static Type accumulationType(Type element) {
  return element.isF64() ? element : Float32Type::get(element.getContext());
}

static RankedTensorType gradientType(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return type.clone(accumulationType(type.getElementType()));
}

Gradients EmbeddingOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  return SmallVector<Value>{Value(), EmbeddingGradOp::create(b, getLoc(), gradientType(getTable()),
                                                             getIds(), cotangents[0], Value())};
}

// y = op(a) op(b), so d op(a) = dy op(b)^T and d op(b) = op(a)^T dy. If an operand is stored
// transposed, its gradient is the transpose: da = op(b) dy^T, db = dy^T op(a).
Gradients MatmulOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  Value dy = cotangents[0];
  bool ta = getTransposeA(), tb = getTransposeB();
  SmallVector<Value> gradients;
  gradients.push_back(
      ta ? MatmulOp::create(b, getLoc(), getA().getType(), getB(), dy, Value(), tb, true)
         : MatmulOp::create(b, getLoc(), getA().getType(), dy, getB(), Value(), false, !tb));
  gradients.push_back(
      tb ? MatmulOp::create(b, getLoc(), getB().getType(), dy, getA(), Value(), true, ta)
         : MatmulOp::create(b, getLoc(), getB().getType(), getA(), dy, Value(), !ta, false));
  if (getAcc())
    gradients.push_back(dy);
  return gradients;
}

Gradients LinearOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  Value dy = cotangents[0];
  const bool transposed = getTransposed();
  SmallVector<Value> gradients;
  gradients.push_back(MatmulOp::create(b, getLoc(), getX().getType(), dy, getWeight(), Value(),
                                       /*transpose_a=*/false, /*transpose_b=*/transposed));
  gradients.push_back(MatmulOp::create(b, getLoc(), gradientType(getWeight()),
                                       transposed ? getX() : dy, transposed ? dy : getX(), Value(),
                                       /*transpose_a=*/true, /*transpose_b=*/false));
  if (getBias())
    gradients.push_back(SumRowsOp::create(b, getLoc(), gradientType(getBias()), dy));
  if (getResidual())
    gradients.push_back(dy);
  return gradients;
}

Gradients QuantizeOp::buildVjp(OpBuilder &, ValueRange cotangents) {
  return SmallVector<Value>{cotangents[0], Value()};
}

Quantized lmc::lm::quantize(OpBuilder &b, Location loc, Value x, Type dtype) {
  auto scalar = RankedTensorType::get({}, b.getF32Type());
  Value max = MaxAbsOp::create(b, loc, scalar, x);
  Value scale = Fp8ScaleOp::create(b, loc, scalar, max, dtype);
  auto type = cast<RankedTensorType>(x.getType()).clone(dtype);
  return {QuantizeOp::create(b, loc, type, x, scale), scale};
}

bool lmc::lm::castsToEightBits(Operation *op) {
  return isa<MaxAbsOp, Fp8ScaleOp, QuantizeOp, QuantizeTilesOp, TransposeOp, TransposeScalesOp>(op);
}

Gradients QuantizeRowsOp::buildVjp(OpBuilder &, ValueRange cotangents) {
  return SmallVector<Value>{cotangents[0]};
}

Gradients QuantizeTilesOp::buildVjp(OpBuilder &, ValueRange cotangents) {
  return SmallVector<Value>{cotangents[0]};
}

// Creates an `Op` that rounds x to codes of `shape`, with `scales` scales.
template <typename Op>
static Quantized quantizeBlocks(OpBuilder &b, Location loc, Value x, Type dtype,
                                ArrayRef<int64_t> shape, ArrayRef<int64_t> scales) {
  auto op = Op::create(b, loc, RankedTensorType::get(shape, dtype),
                       RankedTensorType::get(scales, b.getF32Type()), x);
  return {op.getCodes(), op.getScales()};
}

Quantized lmc::lm::quantizeRows(OpBuilder &b, Location loc, Value x, Type dtype) {
  auto type = cast<RankedTensorType>(x.getType());
  const int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
  return quantizeBlocks<QuantizeRowsOp>(b, loc, x, dtype, {rows, columns},
                                        {columns / kScaleBlock, rows});
}

Quantized lmc::lm::quantizeColumns(OpBuilder &b, Location loc, Value x, Type dtype) {
  auto type = cast<RankedTensorType>(x.getType());
  const int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
  return quantizeBlocks<QuantizeColumnsOp>(b, loc, x, dtype, {columns, rows},
                                           {rows / kScaleBlock, columns});
}

SmallVector<int64_t> lmc::lm::scalesOfTiles(RankedTensorType x, bool padded) {
  const int64_t multiple = padded ? 4 : 1;
  return {x.getDimSize(0) / kScaleBlock,
          int64_t(llvm::alignTo(x.getDimSize(1) / kScaleBlock, multiple))};
}

Quantized lmc::lm::quantizeTiles(OpBuilder &b, Location loc, Value x, Type dtype, bool padded) {
  auto type = cast<RankedTensorType>(x.getType());
  return quantizeBlocks<QuantizeTilesOp>(b, loc, x, dtype, type.getShape(),
                                         scalesOfTiles(type, padded));
}

// Casts columns of what `rows` casts, beside it: the forward pass may keep the codes for the
// backward pass, and then makes both at once.
static Quantized columnsBeside(OpBuilder &b, QuantizeRowsOp rows) {
  Type format = rows.getCodes().getType().getElementType();
  for (Operation *reader : rows.getX().getUsers())
    if (auto columns = dyn_cast<QuantizeColumnsOp>(reader);
        columns && columns.getCodes().getType().getElementType() == format)
      return {columns.getCodes(), columns.getScales()};
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfter(rows);
  return quantizeColumns(b, rows.getLoc(), rows.getX(), format);
}

// y = a op(b). The gradient of codes is that of the numbers which they stand for, so it is that of
// MatmulOp, of the same codes as in the forward pass.
Gradients ScaledMatmulOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  if (getTransposeA() || getAcc() || !getGradDtype())
    return emitOpError("has a gradient only without transpose_a and acc, and with a grad_dtype");
  Value dy = cotangents[0];
  auto product = [&, at = getLoc()](Value like, Type element, Quantized x, Quantized y,
                                    bool transposeX, bool transposeY, bool tiles) -> Value {
    auto type = cast<RankedTensorType>(like.getType()).clone(element);
    return ScaledMatmulOp::create(b, at, type, x.codes, y.codes, x.scale, y.scale, Value(), Value(),
                                  Value(), transposeX, transposeY, tiles, TypeAttr());
  };
  const bool transposed = getTransposeB();
  Type compute = cast<RankedTensorType>(dy.getType()).getElementType();
  const Quantized x{getA(), getScaleA()}, weight{getB(), getScaleB()};
  Value dx, dweight;
  if (getTiles()) {
    // The blocks of x and dy lie along the dimension that is summed over: now their rows.
    auto rows = getA().getDefiningOp<QuantizeRowsOp>();
    if (!rows)
      return emitOpError("has a gradient only if lm.quantize_rows makes a");
    dx = product(getA(), compute, quantizeRows(b, getLoc(), dy, *getGradDtype()), weight, false,
                 !transposed, true);
    const Quantized dys = quantizeColumns(b, getLoc(), dy, *getGradDtype()),
                    xs = columnsBeside(b, rows);
    dweight = product(getB(), b.getF32Type(), transposed ? dys : xs, transposed ? xs : dys, false,
                      true, false);
  } else {
    const Quantized dys = quantize(b, getLoc(), dy, *getGradDtype());
    dx = product(getA(), compute, dys, weight, false, !transposed, false);
    dweight = product(getB(), b.getF32Type(), transposed ? dys : x, transposed ? x : dys, true,
                      false, false);
  }
  SmallVector<Value> gradients{dx, dweight, Value(), Value()};
  if (getBias())
    gradients.push_back(SumRowsOp::create(b, getLoc(), gradientType(getBias()), dy));
  if (getResidual())
    gradients.push_back(dy);
  return gradients;
}

Gradients SplitOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  for (Value cotangent : cotangents)
    if (!cotangent)
      return emitOpError("has a part that the loss does not depend on");
  return SmallVector<Value>{JoinOp::create(b, getLoc(), getX().getType(), cotangents)};
}

Gradients JoinOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  return SmallVector<Value>(
      SplitOp::create(b, getLoc(), getParts().getTypes(), cotangents[0]).getParts());
}

Gradients AddOp::buildVjp(OpBuilder &, ValueRange cotangents) {
  return SmallVector<Value>{cotangents[0], cotangents[0]};
}

Gradients RmsNormOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  auto grad = RmsNormGradOp::create(b, getLoc(), getX().getType(), gradientType(getWeight()),
                                    cotangents[0], getX(), getWeight(), getEpsAttr());
  return SmallVector<Value>{grad.getDx(), grad.getDweight()};
}

Gradients LayerNormOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  auto grad = LayerNormGradOp::create(b, getLoc(), getX().getType(), gradientType(getWeight()),
                                      gradientType(getBias()), cotangents[0], getX(), getWeight(),
                                      getEpsAttr());
  return SmallVector<Value>{grad.getDx(), grad.getDweight(), grad.getDbias()};
}

// The transpose of a rotation is the inverse rotation.
Gradients RopeOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  Value dx = RopeOp::create(b, getLoc(), getX().getType(), cotangents[0], getCos(), getSin(),
                            getHeadDim(), !getInverse());
  return SmallVector<Value>{dx, Value(), Value()};
}

Gradients SwigluOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  auto grad = SwigluGradOp::create(b, getLoc(), getType(), getType(), cotangents[0], getGate(),
                                   getUp());
  return SmallVector<Value>{grad.getDgate(), grad.getDup()};
}

Gradients GeluOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  return SmallVector<Value>{GeluGradOp::create(b, getLoc(), getType(), cotangents[0], getX())};
}

Gradients LinearCrossEntropyOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  auto grad = LinearCrossEntropyGradOp::create(b, getLoc(), getLoss().getType(), getX().getType(),
                                               gradientType(getWeight()), getX(), getWeight(),
                                               getTargets(), cotangents[0], Value(), getChunkAttr(),
                                               getClassesAttr(), getZLossAttr());
  return SmallVector<Value>{grad.getDx(), grad.getDweight(), Value()};
}

SmallVector<Value> LinearCrossEntropyOp::getResultsFromVjp(ValueRange gradients) {
  return {gradients[0].getDefiningOp<LinearCrossEntropyGradOp>().getLoss()};
}

Value LinearCrossEntropyGradOp::getAccumulated() { return getDweight(); }
