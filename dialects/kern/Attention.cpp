#include "dialects/interfaces/Attention.h"
#include "dialects/kern/Kern.h"
#include "dialects/plan/Plan.h"

using namespace mlir;
using namespace lmc;
using namespace lmc::kern;

LogicalResult AttentionOp::verify() {
  return verifyAttention(*this, AttentionShape(*this, getResult()));
}

LogicalResult AttentionGradOp::verify() { return verifyAttentionGrad(*this); }

// Attention needs no scratch memory on any target.
void AttentionOp::createCommand(OpBuilder &b, llvm::function_ref<Value(Value)> sliceOf, Value) {
  plan_ir::AttentionOp::create(b, getLoc(), sliceOf(getQ()), sliceOf(getK()), sliceOf(getV()),
                               sliceOf(getResult()), sliceOf(getLse()), sliceOf(getStarts()),
                               getHeadDim(), getSeq(), getScale(), getWindow());
}

void AttentionGradOp::createCommand(OpBuilder &b, llvm::function_ref<Value(Value)> sliceOf,
                                    Value scratch) {
  plan_ir::AttentionGradOp::create(
      b, getLoc(), sliceOf(getQ()), sliceOf(getK()), sliceOf(getV()), sliceOf(getOut()),
      sliceOf(getLse()), sliceOf(getDout()), sliceOf(getDq()), sliceOf(getDk()), sliceOf(getDv()),
      sliceOf(getStarts()), sliceOf(getCos()), sliceOf(getSin()), scratch, getHeadDim(),
      getSeq(), getScale(), getWindow());
}
