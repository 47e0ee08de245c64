// The ops of a mixture of experts: the commands that they become.
#include "dialects/kern/Kern.h"
#include "dialects/plan/Plan.h"

using namespace mlir;
using namespace lmc;
using namespace lmc::kern;

void RouteOp::createCommand(OpBuilder &b, llvm::function_ref<Value(Value)> sliceOf, Value scratch) {
  plan_ir::RouteOp::create(b, getLoc(), sliceOf(getLogits()), sliceOf(getBias()),
                           sliceOf(getWeights()), sliceOf(getExperts()), sliceOf(getCounts()),
                           sliceOf(getMass()), scratch, getNormalize(), getSigmoid(), getScale());
}

void SortRowsOp::createCommand(OpBuilder &b, llvm::function_ref<Value(Value)> sliceOf,
                               Value scratch) {
  plan_ir::SortRowsOp::create(b, getLoc(), sliceOf(getExperts()), sliceOf(getRank()),
                              sliceOf(getOffsets()), sliceOf(getRows()), sliceOf(getPlaces()),
                              scratch, getGroups(), getFirst());
}
