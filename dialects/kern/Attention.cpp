#include "dialects/interfaces/Attention.h"
#include "dialects/kern/Kern.h"
#include "dialects/plan/Plan.h"

using namespace mlir;
using namespace lmc;
using namespace lmc::kern;

LogicalResult AttentionOp::verify() {
  if (failed(verifyAttention(*this, getResult().getType())))
    return failure();
  return verifyLargest(*this, getLargest(), getLse().getType(), getLse().getType().getDimSize(1));
}
LogicalResult AttentionGradOp::verify() { return verifyAttentionGrad(*this); }

// The last argument, scratch memory, is not used, because attention needs none on any target.
void AttentionOp::createCommand(OpBuilder &b, llvm::function_ref<Value(Value)> sliceOf, Value) {
  // sliceOf() numbers slices in the order of its calls
  Value largest = sliceOf(getLargest()), starts = sliceOf(getStarts());
  plan_ir::AttentionOp::create(b, getLoc(), sliceOf(getQ()), sliceOf(getK()), sliceOf(getV()),
                               starts, sliceOf(getResult()), sliceOf(getLse()), largest, Value(),
                               getHeadDim(), getSeq(), getScale(), getWindow());
}

void AttentionGradOp::createCommand(OpBuilder &b, llvm::function_ref<Value(Value)> sliceOf,
                                    Value scratch) {
  Value largest = sliceOf(getLargest()), sin = sliceOf(getSin()), cos = sliceOf(getCos()),
        starts = sliceOf(getStarts());
  plan_ir::AttentionGradOp::create(
      b, getLoc(), sliceOf(getQ()), sliceOf(getK()), sliceOf(getV()), sliceOf(getOut()),
      sliceOf(getLse()), sliceOf(getDout()), starts, cos, sin, sliceOf(getDq()), sliceOf(getDk()),
      sliceOf(getDv()), largest, scratch, getHeadDim(), getSeq(), getScale(), getWindow());
}
