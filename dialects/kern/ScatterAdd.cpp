#include "dialects/kern/Kern.h"

using namespace mlir;
using namespace lmc::kern;

static Type sumTypeOf(Type type) {
  return type.isF64() ? type : Float32Type::get(type.getContext());
}

LogicalResult ScatterAddOp::verify() {
  auto ids = cast<RankedTensorType>(getIds().getType());
  auto x = cast<RankedTensorType>(getX().getType());
  auto d = cast<RankedTensorType>(getResult().getType());
  if (x.getRank() != 2 || d.getRank() != 2 || x.getDimSize(0) != ids.getDimSize(0) ||
      x.getDimSize(1) != d.getDimSize(1))
    return emitOpError("adds rows of ") << x << " by " << ids << " into " << d;
  if (!isa<FloatType>(x.getElementType()) || d.getElementType() != sumTypeOf(x.getElementType()))
    return emitOpError("sums ") << x.getElementType() << " in " << d.getElementType();
  if (getAcc() && getAcc().getType() != d)
    return emitOpError("has an accumulator of type ") << getAcc().getType();
  return success();
}
