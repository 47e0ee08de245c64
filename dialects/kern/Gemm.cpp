#include "dialects/kern/Kern.h"
#include "dialects/plan/Plan.h"

using namespace mlir;
using namespace lmc::kern;

LogicalResult GemmOp::verify() {
  auto a = cast<RankedTensorType>(getA().getType()), b = cast<RankedTensorType>(getB().getType());
  RankedTensorType d = getType();
  const bool isScaled = isEightBits(a.getElementType());
  if (isScaled != isEightBits(b.getElementType()) || isScaled != bool(getScaleA()) ||
      isScaled != bool(getScaleB()))
    return emitOpError("multiplies ") << a << " by " << b << "; factors of 8 bits have scales, and "
                                      << "no others have";
  const int64_t batch = int64_t(getBatch());
  for (RankedTensorType stack : {a, b, d})
    if (batch < 1 || stack.getDimSize(0) % batch != 0)
      return emitOpError("has no stack of ") << batch << " matrices in " << stack;
  if (batch > 1 && (getBias() || getResidual()))
    return emitOpError("adds a bias or a residual to ") << batch << " products";
  const int64_t rowsA = a.getDimSize(0) / batch, rowsB = b.getDimSize(0) / batch;
  int64_t m = getTransposeA() ? a.getDimSize(1) : rowsA,
          k = getTransposeA() ? rowsA : a.getDimSize(1);
  int64_t kb = getTransposeB() ? b.getDimSize(1) : rowsB,
          n = getTransposeB() ? rowsB : b.getDimSize(1);
  if (k != kb || d.getDimSize(0) != batch * m || d.getDimSize(1) != n)
    return emitOpError("multiplies [")
           << m << ", " << k << "] by [" << kb << ", " << n << "] into " << d;
  if (getAcc() && getAcc().getType() != d)
    return emitOpError("has an accumulator of type ") << getAcc().getType();
  if (getResidual() && getResidual().getType() != d)
    return emitOpError("has a residual of type ") << getResidual().getType();
  if (getResidual() && getAcc())
    return emitOpError("has both a residual and an accumulator");
  if (getBias() && cast<RankedTensorType>(getBias().getType()).getDimSize(0) != n)
    return emitOpError("has a bias of type ") << getBias().getType();
  return success();
}

void LinearSwigluOp::createCommand(OpBuilder &b, llvm::function_ref<Value(Value)> sliceOf,
                                   Value scratch) {
  lmc::plan_ir::LinearSwigluOp::create(b, getLoc(), sliceOf(getX()), sliceOf(getWeight()),
                                       sliceOf(getGu()), sliceOf(getA()), scratch, getBoth());
}

void SwigluLinearGradOp::createCommand(OpBuilder &b, llvm::function_ref<Value(Value)> sliceOf,
                                       Value scratch) {
  lmc::plan_ir::SwigluLinearGradOp::create(b, getLoc(), sliceOf(getDy()), sliceOf(getWeight()),
                                           sliceOf(getDgu()), sliceOf(getA()), scratch, getBoth());
}

void GemmOp::createCommand(OpBuilder &b, llvm::function_ref<Value(Value)> sliceOf, Value scratch) {
  lmc::plan_ir::GemmOp::create(b, getLoc(), sliceOf(getA()), sliceOf(getB()), sliceOf(getResult()),
                               sliceOf(getBias()), sliceOf(getResidual()), sliceOf(getScaleA()),
                               sliceOf(getScaleB()), scratch, bool(getAcc()), getTransposeA(),
                               getTransposeB(), getTiles(), getBatch());
}
