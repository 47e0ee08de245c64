#include "dialects/kern/Kern.h"
#include "dialects/plan/Plan.h"

using namespace mlir;
using namespace lmc::kern;

LogicalResult GemmOp::verify() {
  auto a = cast<RankedTensorType>(getA().getType()), b = cast<RankedTensorType>(getB().getType());
  RankedTensorType d = getType();
  int64_t m = a.getDimSize(getTransposeA() ? 1 : 0), k = a.getDimSize(getTransposeA() ? 0 : 1);
  int64_t kb = b.getDimSize(getTransposeB() ? 1 : 0), n = b.getDimSize(getTransposeB() ? 0 : 1);
  if (k != kb || d.getDimSize(0) != m || d.getDimSize(1) != n)
    return emitOpError("multiplies [")
           << m << ", " << k << "] by [" << kb << ", " << n << "] into " << d;
  if (getAcc() && getAcc().getType() != d)
    return emitOpError("has an accumulator of type ") << getAcc().getType();
  if (getBias() && cast<RankedTensorType>(getBias().getType()).getDimSize(0) != n)
    return emitOpError("has a bias of type ") << getBias().getType();
  return success();
}

void GemmOp::createCommand(OpBuilder &b, llvm::function_ref<Value(Value)> sliceOf, Value scratch) {
  lmc::plan_ir::GemmOp::create(b, getLoc(), sliceOf(getA()), sliceOf(getB()), sliceOf(getResult()),
                               sliceOf(getBias()), scratch, bool(getAcc()), getTransposeA(),
                               getTransposeB());
}
