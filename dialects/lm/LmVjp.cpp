// The vector-Jacobian products of the lm ops, each derived by hand.
#include "dialects/lm/Lm.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace lmc::lm;

// Returns the dtype of sums over tokens, which is that of main gradients: wider than bf16.
static Type accumulationType(Type element) {
  return element.isF64() ? element : Float32Type::get(element.getContext());
}

// Returns the type of `value` with the accumulation dtype.
static RankedTensorType gradientType(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  return type.clone(accumulationType(type.getElementType()));
}

LogicalResult EmbeddingOp::buildVjp(OpBuilder &b, ValueRange cotangents,
                                    SmallVectorImpl<Value> &gradients) {
  gradients.push_back(Value());
  gradients.push_back(EmbeddingGradOp::create(b, getLoc(), gradientType(getTable()), getIds(),
                                              cotangents[0], Value()));
  return success();
}

Value EmbeddingGradOp::getAccumulator() { return getAcc(); }
void EmbeddingGradOp::setAccumulator(Value acc) { getAccMutable().assign(acc); }

Value MatmulOp::getAccumulator() { return getAcc(); }
void MatmulOp::setAccumulator(Value acc) { getAccMutable().assign(acc); }

// y = op(a) op(b). With dy of y's shape, d op(a) = dy op(b)^T and d op(b) = op(a)^T dy. If an
// operand is stored transposed, so is its gradient, and the factors are exchanged.
LogicalResult MatmulOp::buildVjp(OpBuilder &b, ValueRange cotangents,
                                 SmallVectorImpl<Value> &gradients) {
  Value dy = cotangents[0];
  bool ta = getTransposeA(), tb = getTransposeB();
  gradients.push_back(
      ta ? MatmulOp::create(b, getLoc(), getA().getType(), getB(), dy, Value(), tb, true)
         : MatmulOp::create(b, getLoc(), getA().getType(), dy, getB(), Value(), false, !tb));
  gradients.push_back(
      tb ? MatmulOp::create(b, getLoc(), getB().getType(), dy, getA(), Value(), true, ta)
         : MatmulOp::create(b, getLoc(), getB().getType(), getA(), dy, Value(), !ta, false));
  if (getAcc())
    gradients.push_back(dy);
  return success();
}

LogicalResult LinearOp::buildVjp(OpBuilder &b, ValueRange cotangents,
                                 SmallVectorImpl<Value> &gradients) {
  Value dy = cotangents[0];
  const bool transposed = getTransposed();
  gradients.push_back(MatmulOp::create(b, getLoc(), getX().getType(), dy, getWeight(), Value(),
                                       /*transpose_a=*/false, /*transpose_b=*/transposed));
  gradients.push_back(MatmulOp::create(b, getLoc(), gradientType(getWeight()),
                                       transposed ? getX() : dy, transposed ? dy : getX(), Value(),
                                       /*transpose_a=*/true, /*transpose_b=*/false));
  if (getBias())
    gradients.push_back(SumRowsOp::create(b, getLoc(), gradientType(getBias()), dy));
  if (getResidual())
    gradients.push_back(dy);
  return success();
}

LogicalResult SplitOp::buildVjp(OpBuilder &b, ValueRange cotangents,
                                SmallVectorImpl<Value> &gradients) {
  for (Value cotangent : cotangents)
    if (!cotangent)
      return emitOpError("has a part that the loss does not depend on");
  gradients.push_back(JoinOp::create(b, getLoc(), getX().getType(), cotangents));
  return success();
}

LogicalResult JoinOp::buildVjp(OpBuilder &b, ValueRange cotangents,
                               SmallVectorImpl<Value> &gradients) {
  auto split = SplitOp::create(b, getLoc(), getParts().getTypes(), cotangents[0]);
  gradients.append(split.getParts().begin(), split.getParts().end());
  return success();
}

LogicalResult AddOp::buildVjp(OpBuilder &, ValueRange cotangents,
                              SmallVectorImpl<Value> &gradients) {
  gradients.append({cotangents[0], cotangents[0]});
  return success();
}

LogicalResult RmsNormOp::buildVjp(OpBuilder &b, ValueRange cotangents,
                                  SmallVectorImpl<Value> &gradients) {
  auto grad = RmsNormGradOp::create(b, getLoc(), getX().getType(), gradientType(getWeight()),
                                    cotangents[0], getX(), getWeight(), getEpsAttr());
  gradients.append({grad.getDx(), grad.getDweight()});
  return success();
}

LogicalResult LayerNormOp::buildVjp(OpBuilder &b, ValueRange cotangents,
                                    SmallVectorImpl<Value> &gradients) {
  auto grad = LayerNormGradOp::create(b, getLoc(), getX().getType(), gradientType(getWeight()),
                                      gradientType(getBias()), cotangents[0], getX(), getWeight(),
                                      getEpsAttr());
  gradients.append({grad.getDx(), grad.getDweight(), grad.getDbias()});
  return success();
}

// The transpose of a rotation is the inverse rotation.
LogicalResult RopeOp::buildVjp(OpBuilder &b, ValueRange cotangents,
                               SmallVectorImpl<Value> &gradients) {
  gradients.push_back(RopeOp::create(b, getLoc(), getX().getType(), cotangents[0], getCos(),
                                     getSin(), getHeadDim(), !getInverse()));
  gradients.append({Value(), Value()});
  return success();
}

LogicalResult SwigluOp::buildVjp(OpBuilder &b, ValueRange cotangents,
                                 SmallVectorImpl<Value> &gradients) {
  auto grad = SwigluGradOp::create(b, getLoc(), getType(), getType(), cotangents[0], getGate(),
                                   getUp());
  gradients.append({grad.getDgate(), grad.getDup()});
  return success();
}

LogicalResult GeluOp::buildVjp(OpBuilder &b, ValueRange cotangents,
                               SmallVectorImpl<Value> &gradients) {
  gradients.push_back(GeluGradOp::create(b, getLoc(), getType(), cotangents[0], getX()));
  return success();
}

LogicalResult LinearCrossEntropyOp::buildVjp(OpBuilder &b, ValueRange cotangents,
                                             SmallVectorImpl<Value> &gradients) {
  auto grad = LinearCrossEntropyGradOp::create(b, getLoc(), getLoss().getType(), getX().getType(),
                                               gradientType(getWeight()), getX(), getWeight(),
                                               getTargets(), cotangents[0], Value(), getChunkAttr(),
                                               getClassesAttr(), getZLossAttr());
  gradients.append({grad.getDx(), grad.getDweight(), Value()});
  return success();
}

SmallVector<Value> LinearCrossEntropyOp::getResultsFromVjp(ValueRange gradients) {
  return {gradients[0].getDefiningOp<LinearCrossEntropyGradOp>().getLoss()};
}

Value LinearCrossEntropyGradOp::getAccumulated() { return getDweight(); }
Value LinearCrossEntropyGradOp::getAccumulator() { return getAcc(); }
void LinearCrossEntropyGradOp::setAccumulator(Value acc) { getAccMutable().assign(acc); }
