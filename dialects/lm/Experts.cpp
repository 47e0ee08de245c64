// Defines the ops of a mixture of experts: their verifiers and vector-Jacobian products.
#include "dialects/lm/Lm.h"
#include "dialects/lm/TensorTypes.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace lmc;
using namespace lmc::lm;

static LogicalResult expectShape(Operation *op, Value value, ArrayRef<int64_t> shape,
                                 StringRef what) {
  if (tensorTypeOf(value).getShape() == shape)
    return success();
  InFlightDiagnostic error = op->emitOpError() << what << " is " << value.getType() << ", not [";
  llvm::interleaveComma(shape, error);
  return error << "]";
}

// Fails unless `like` and all of `values` are f64, or none of them is.
static LogicalResult expectReal(Operation *op, Value like, ValueRange values) {
  const bool isDouble = tensorTypeOf(like).getElementType().isF64();
  for (Value value : values)
    if (value && tensorTypeOf(value).getElementType().isF64() != isDouble)
      return op->emitOpError("computes ") << like.getType() << " in " << value.getType();
  return success();
}

LogicalResult RouteOp::verify() {
  const int64_t tokens = extent(getLogits(), 0), experts = extent(getLogits(), 1);
  const int64_t chosen = extent(getExperts(), 1);
  if (chosen < 1 || chosen > experts)
    return emitOpError("chooses ") << chosen << " of " << experts << " experts";
  if (failed(expectShape(*this, getExperts(), {tokens, chosen}, "experts")) ||
      failed(expectShape(*this, getWeights(), {tokens, chosen}, "weights")) ||
      failed(expectShape(*this, getCounts(), {experts}, "counts")) ||
      failed(expectShape(*this, getMass(), {experts}, "mass")) ||
      (getBias() && failed(expectShape(*this, getBias(), {experts}, "bias"))))
    return failure();
  return expectReal(*this, getLogits(), {getBias(), getWeights(), getCounts(), getMass()});
}

LogicalResult RouteGradOp::verify() {
  const int64_t tokens = extent(getLogits(), 0), experts = extent(getLogits(), 1);
  const int64_t chosen = extent(getExperts(), 1);
  if (getSigmoid() && getDmass())
    return emitOpError("has a gradient of the mass, which sigmoids do not have");
  if (failed(expectShape(*this, getExperts(), {tokens, chosen}, "experts")) ||
      failed(expectShape(*this, getDweights(), {tokens, chosen}, "dweights")) ||
      failed(expectShape(*this, getResult(), {tokens, experts}, "result")) ||
      (getDmass() && failed(expectShape(*this, getDmass(), {experts}, "dmass"))))
    return failure();
  return expectReal(*this, getLogits(), {getDweights(), getDmass()});
}

LogicalResult SortRowsOp::verify() {
  const int64_t choices = tensorTypeOf(getExperts()).getNumElements();
  if (extent(getOffsets(), 0) < 2)
    return emitOpError("has no expert");
  if (int64_t(getGroups()) < 1 || int64_t(getFirst()) < 0)
    return emitOpError("has ") << int64_t(getGroups()) << " groups of experts, and rows from "
                               << int64_t(getFirst()) << " on";
  if (bool(getRank()) != (getGroups() > 1))
    return emitOpError("needs the rank if, and only if, it has several groups of experts");
  const int64_t rows = extent(getRows(), 0);
  if (getGroups() == 1 ? rows != choices : rows < 1 || rows + int64_t(getFirst()) > choices)
    return emitOpError("sorts ") << rows << " rows of " << choices << " choices";
  return expectShape(*this, getPlaces(), {choices}, "places");
}

LogicalResult TakeRowsOp::verify() {
  const int64_t choices = extent(getPlaces(), 0), rows = extent(getRows(), 0);
  if (choices % extent(getX(), 0) != 0 || rows > choices)
    return emitOpError("takes ") << rows << " rows of " << choices << " choices of "
                                 << extent(getX(), 0) << " tokens";
  return expectShape(*this, getResult(), {rows, extent(getX(), 1)}, "result");
}

LogicalResult TakeRowsGradOp::verify() {
  const int64_t choices = extent(getPlaces(), 0), rows = extent(getDy(), 0);
  if (choices % extent(getResult(), 0) != 0 || rows > choices)
    return emitOpError("adds ") << rows << " rows of " << choices << " choices to "
                                << extent(getResult(), 0) << " tokens";
  return expectShape(*this, getDy(), {rows, extent(getResult(), 1)}, "dy");
}

// Verifies the operands that combine_rows and its gradient share. `out`: the result or its
// gradient.
template <typename Op> static LogicalResult verifyCombineRows(Op op, Value out) {
  const int64_t choices = extent(op.getWeights(), 0) * extent(op.getWeights(), 1);
  const int64_t rows = extent(op.getRows(), 0);
  if (rows > choices)
    return op.emitOpError("has ") << rows << " rows of " << choices << " choices";
  if (failed(expectShape(op, op.getPlaces(), {choices}, "places")))
    return failure();
  return expectShape(op, op.getY(), {rows, extent(out, 1)}, "y");
}

LogicalResult CombineRowsOp::verify() {
  if (failed(verifyCombineRows(*this, getResult())) ||
      failed(expectReal(*this, getY(), {getWeights()})))
    return failure();
  return expectShape(*this, getResult(), {extent(getWeights(), 0), extent(getY(), 1)}, "result");
}

LogicalResult CombineRowsGradOp::verify() {
  if (getDy().getType() != getY().getType() || getDweights().getType() != getWeights().getType())
    return emitOpError("has gradients of other types than y and weights");
  if (failed(verifyCombineRows(*this, getDout())))
    return failure();
  return expectShape(*this, getDout(), {extent(getWeights(), 0), extent(getY(), 1)}, "dout");
}

LogicalResult ExpertLinearOp::verify() {
  const int64_t experts = extent(getOffsets(), 0) - 1, rows = extent(getX(), 0);
  const int64_t inner = extent(getX(), 1), columns = extent(getResult(), 1);
  const bool transposed = getTransposed();
  if (experts < 1)
    return emitOpError("has no expert");
  if (failed(expectShape(*this, getWeight(),
                         {experts * (transposed ? inner : columns), transposed ? columns : inner},
                         "weight")))
    return failure();
  return expectShape(*this, getResult(), {rows, columns}, "result");
}

LogicalResult ExpertScaledLinearOp::verify() {
  const int64_t experts = extent(getOffsets(), 0) - 1, rows = extent(getX(), 0);
  const int64_t inner = extent(getX(), 1), columns = extent(getResult(), 1);
  if (experts < 1)
    return emitOpError("has no expert");
  if (inner % kScaleBlock != 0 || columns % kScaleBlock != 0)
    return emitOpError("has matrices of ")
           << inner << " by " << columns << " elements in blocks of " << kScaleBlock;
  if (getTransposed() && getBeside())
    return emitOpError("has matrices that are transposed, and lie one beside the other");
  SmallVector<int64_t> weight{experts * columns, inner};
  if (getTransposed())
    weight = {experts * inner, columns};
  if (getBeside())
    weight = {columns, experts * inner};
  if (failed(expectShape(*this, getWeight(), weight, "weight")) ||
      failed(expectShape(*this, getWeightScales(),
                         {weight[0] / kScaleBlock, weight[1] / kScaleBlock}, "weight_scales")) ||
      failed(expectShape(*this, getXScales(), {inner / kScaleBlock, rows}, "x_scales")))
    return failure();
  return expectShape(*this, getResult(), {rows, columns}, "result");
}

LogicalResult ExpertLinearGradOp::verify() {
  const int64_t experts = extent(getOffsets(), 0) - 1;
  if (getAcc() && getAcc().getType() != getType())
    return emitOpError("has an accumulator of type ") << getAcc().getType();
  if (experts < 1 || extent(getDy(), 0) != extent(getX(), 0))
    return emitOpError("has ") << extent(getDy(), 0) << " rows of dy and " << extent(getX(), 0)
                               << " of x for " << experts << " experts";
  return expectShape(*this, getResult(), {experts * extent(getDy(), 1), extent(getX(), 1)},
                     "result");
}

// Fails unless `x` has as many rows as `y`, and twice as many columns.
static LogicalResult expectHalves(Operation *op, Value x, Value offsets, Value y, StringRef what) {
  const RankedTensorType rows = tensorTypeOf(y), halves = tensorTypeOf(x);
  if (extent(offsets, 0) < 2)
    return op->emitOpError("has no expert");
  if (halves.getElementType() != rows.getElementType())
    return op->emitOpError("has x of ") << halves << ", and " << what << " of " << rows;
  return expectShape(op, x, {rows.getDimSize(0), 2 * rows.getDimSize(1)}, "x");
}

LogicalResult ExpertSwigluOp::verify() {
  return expectHalves(*this, getX(), getOffsets(), getResult(), "y");
}

LogicalResult ExpertSwigluGradOp::verify() {
  if (getType() != getX().getType())
    return emitOpError("has a gradient of another type than x");
  return expectHalves(*this, getX(), getOffsets(), getDy(), "dy");
}

LogicalResult BalanceLossOp::verify() {
  return expectShape(*this, getMass(), {extent(getCounts(), 0)}, "mass");
}

LogicalResult RouterEntropyOp::verify() {
  if (failed(expectShape(*this, getResult(), {extent(getLogits(), 1)}, "result")))
    return failure();
  return expectReal(*this, getLogits(), getResult());
}

LogicalResult LateRowsOp::verify() {
  if (getOffsets().empty())
    return emitOpError("needs the offsets of at least one window");
  return expectShape(*this, getResult(), {1}, "result");
}

//===-- Gradients ---------------------------------------------------------------------------===//

// `weights` and, with softmax, `mass` have gradients. `experts` and `counts` are step functions.
bool RouteOp::hasGradient(unsigned result) { return result == 0 || (result == 3 && !getSigmoid()); }

Gradients RouteOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  if (!cotangents[0])
    return emitOpError("has weights that the loss does not depend on");
  SmallVector<Value> gradients;
  gradients.push_back(RouteGradOp::create(b, getLoc(), getLogits().getType(), getLogits(),
                                          getExperts(), cotangents[0], cotangents[3],
                                          getNormalize(), getSigmoid(), getScale()));
  if (getBias())
    gradients.push_back(getCounts());
  return gradients;
}

Gradients TakeRowsOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  Value dx = TakeRowsGradOp::create(b, getLoc(), getX().getType(), cotangents[0], getPlaces());
  return SmallVector<Value>{dx, Value(), Value()};
}

Gradients CombineRowsOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  auto grad =
      CombineRowsGradOp::create(b, getLoc(), getY().getType(), getWeights().getType(),
                                cotangents[0], getY(), getWeights(), getRows(), getPlaces());
  return SmallVector<Value>{grad.getDy(), grad.getDweights(), Value(), Value()};
}

Gradients ExpertLinearOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  Value dy = cotangents[0];
  auto weight = tensorTypeOf(getWeight());
  Type sums = weight.getElementType().isF64() ? weight.getElementType() : b.getF32Type();
  const bool transposed = getTransposed();
  Value dx = ExpertLinearOp::create(b, getLoc(), getX().getType(), dy, getWeight(), getOffsets(),
                                    !transposed);
  Value dweight =
      ExpertLinearGradOp::create(b, getLoc(), weight.clone(sums), transposed ? getX() : dy,
                                 transposed ? dy : getX(), getOffsets(), Value());
  return SmallVector<Value>{dx, dweight, Value()};
}

Gradients ExpertScaledLinearOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  auto cast = getX().getDefiningOp<QuantizeRowsOp>();
  if (!cast || getTransposed() || getBeside())
    return emitOpError(
        "has a gradient only if lm.quantize_rows makes x, and without transposed and "
        "beside");
  Value dy = cotangents[0];
  RankedTensorType x = tensorTypeOf(getX()), weight = tensorTypeOf(getWeight());
  const Quantized dys = quantizeRows(b, getLoc(), dy, x.getElementType());
  Value dx = ExpertScaledLinearOp::create(b, getLoc(), x.clone(tensorTypeOf(dy).getElementType()),
                                          dys.codes, getWeight(), getOffsets(), dys.scale,
                                          getWeightScales(), /*transposed=*/true, /*beside=*/false);
  Value dweight = ExpertLinearGradOp::create(b, getLoc(), weight.clone(b.getF32Type()), dy,
                                             cast.getX(), getOffsets(), Value());
  return SmallVector<Value>{dx, dweight, Value(), Value(), Value()};
}

Gradients ExpertSwigluOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  Value dx = ExpertSwigluGradOp::create(b, getLoc(), getX().getType(), cotangents[0], getX(),
                                        getOffsets());
  return SmallVector<Value>{dx, Value()};
}

Gradients BalanceLossOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  return SmallVector<Value>{cotangents[0], Value(),
                            BalanceLossGradOp::create(b, getLoc(), getMass().getType(),
                                                      cotangents[0], getCounts(), getFactorAttr())};
}
