// lm-fold-largest: lets attention, and its gradient, write the largest values of what they compute.
// Passes.td shows an example.
#include "passes/fusion/Passes.h"

#include "dialects/lm/Lm.h"

namespace lmc {
#define GEN_PASS_DEF_FOLDLARGESTPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// Returns the gradient of attention whose results dq, dk and dv `join` has, in any order, or null.
static lm::AttentionGradOp gradientOf(lm::JoinOp join) {
  auto grad = join.getParts().front().getDefiningOp<lm::AttentionGradOp>();
  if (!grad || join.getParts().size() != 3)
    return {};
  for (Value result : {grad.getDq(), grad.getDk(), grad.getDv()})
    if (!llvm::is_contained(join.getParts(), result))
      return {};
  return grad;
}

// Returns `op` with one more result, [tokens, columns], or `op` itself if it has that already.
template <typename Op> static Op withLargest(Op op, int64_t columns) {
  if (op.getLargest())
    return op;
  const RankedTensorType lse = op.getLse().getType();
  SmallVector<Type> types(op->getResultTypes());
  types.push_back(lse.clone(ArrayRef<int64_t>{lse.getDimSize(0), columns}));
  OperationState state(op.getLoc(), op->getName(), op->getOperands(), types,
                       llvm::to_vector(op->getDiscardableAttrs()));
  state.propertiesAttr = op->getPropertiesAsAttribute();
  OpBuilder b(op);
  auto made = cast<Op>(b.create(state));
  op->replaceAllUsesWith(made->getResults().drop_back());
  op.erase();
  return made;
}

// Returns where attention can write the largest values of the heads of x, or null.
static Value largestOf(Value x) {
  if (auto attention = x.getDefiningOp<lm::AttentionOp>(); attention && x == attention.getResult())
    return withLargest(attention, attention.getLse().getType().getDimSize(1)).getLargest();
  auto join = x.getDefiningOp<lm::JoinOp>();
  lm::AttentionGradOp grad = join ? gradientOf(join) : lm::AttentionGradOp();
  if (!grad)
    return {};
  const int64_t columns = cast<RankedTensorType>(x.getType()).getDimSize(1);
  return withLargest(grad, columns / int64_t(grad.getHeadDim())).getLargest();
}

namespace {
struct FoldLargestPass : lmc::impl::FoldLargestPassBase<FoldLargestPass> {
  void runOnOperation() override {
    SmallVector<lm::MaxAbsOp> ops;
    getOperation().walk([&](lm::MaxAbsOp op) { ops.push_back(op); });
    for (lm::MaxAbsOp op : ops)
      if (Value largest = largestOf(op.getX())) {
        op.getXMutable().assign(largest);
        ++numFolded;
      }
  }
};
} // namespace
