#include "dialects/interfaces/Attention.h"
#include "dialects/kern/Kern.h"
#include "dialects/plan/Plan.h"

using namespace mlir;
using namespace lmc;
using namespace lmc::kern;

LogicalResult AttentionOp::verify() { return verifyAttention(*this, getResult().getType()); }
LogicalResult AttentionGradOp::verify() { return verifyAttentionGrad(*this); }

// The last argument, scratch memory, is not used, because attention needs none on any target.
void AttentionOp::createCommand(OpBuilder &b, llvm::function_ref<Value(Value)> sliceOf, Value) {
  Value starts = sliceOf(getStarts()); // sliceOf() numbers slices in the order of its calls
  plan_ir::AttentionOp::create(b, getLoc(), sliceOf(getQ()), sliceOf(getK()), sliceOf(getV()),
                               starts, sliceOf(getResult()), sliceOf(getLse()), Value(),
                               getHeadDim(), getSeq(), getScale(), getWindow());
}

void AttentionGradOp::createCommand(OpBuilder &b, llvm::function_ref<Value(Value)> sliceOf,
                                    Value scratch) {
  Value sin = sliceOf(getSin()), cos = sliceOf(getCos()), starts = sliceOf(getStarts());
  plan_ir::AttentionGradOp::create(b, getLoc(), sliceOf(getQ()), sliceOf(getK()), sliceOf(getV()),
                                   sliceOf(getOut()), sliceOf(getLse()), sliceOf(getDout()), starts,
                                   cos, sin, sliceOf(getDq()), sliceOf(getDk()), sliceOf(getDv()),
                                   scratch, getHeadDim(), getSeq(), getScale(), getWindow());
}
