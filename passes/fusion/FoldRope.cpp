// lm-fold-rope: moves the inverse rotation of dq and dk into attention's gradient. The gradient's
// kernels hold dq and dk in registers. Passes.td shows an example.
//
// In the forward pass rope stays a separate op, because many thread blocks read the rotated keys.
#include "passes/fusion/Passes.h"

#include "dialects/lm/Lm.h"

#include "mlir/IR/Dominance.h"

#include "llvm/ADT/SetVector.h"

namespace lmc {
#define GEN_PASS_DEF_FOLDROPEPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// Returns the inverse rope that is the only reader of `value`, or null. The rope may also read a
// join of `value` with other parts if all parts of the join are in `rotated`.
static lm::RopeOp rotationOf(Value value, ArrayRef<Value> rotated) {
  if (!value.hasOneUse())
    return {};
  Operation *reader = *value.user_begin();
  if (auto join = dyn_cast<lm::JoinOp>(reader)) {
    auto isRotated = [&](Value part) { return llvm::is_contained(rotated, part); };
    if (!join->hasOneUse() || !llvm::all_of(join.getParts(), isRotated))
      return {};
    reader = *join->user_begin();
  }
  auto rope = dyn_cast<lm::RopeOp>(reader);
  return rope && rope.getInverse() ? rope : lm::RopeOp();
}

// Returns true if attention_grad can compute the rotation of `rope`.
static bool canFold(lm::RopeOp rope, lm::AttentionGradOp grad) {
  auto table = cast<RankedTensorType>(rope.getCos().getType());
  return rope.getHeadDim() == grad.getHeadDim() && table.getElementType().isF32() &&
         table.getDimSize(0) == int64_t(grad.getSeq());
}

// If the only reader of a join is another join, replaces the inner join by its operands. The
// operands are then written directly to their final places.
static void flatten(lm::JoinOp join) {
  auto outer = join->hasOneUse() ? dyn_cast<lm::JoinOp>(*join->user_begin()) : lm::JoinOp();
  if (!outer)
    return;
  SmallVector<Value> parts;
  for (Value part : outer.getParts())
    if (part == join.getResult())
      llvm::append_range(parts, join.getParts());
    else
      parts.push_back(part);
  outer.getPartsMutable().assign(parts);
  join.erase();
}

// Tries to move the rotations of dq and dk into `grad`. Returns true if this succeeds.
static bool fold(lm::AttentionGradOp grad) {
  if (grad.getCos())
    return false;
  Value dq = grad.getDq(), dk = grad.getDk();
  DominanceInfo dominance;
  lm::RopeOp queries = rotationOf(dq, {dq, dk}), keys = rotationOf(dk, {dq, dk});
  if (!queries || !keys || !canFold(queries, grad) || !canFold(keys, grad) ||
      queries.getCos() != keys.getCos() || queries.getSin() != keys.getSin() ||
      !dominance.properlyDominates(queries.getCos(), grad) ||
      !dominance.properlyDominates(queries.getSin(), grad))
    return false;
  grad.getCosMutable().assign(queries.getCos());
  grad.getSinMutable().assign(queries.getSin());
  llvm::SmallSetVector<lm::RopeOp, 2> ropes;
  ropes.insert(queries);
  ropes.insert(keys);
  for (lm::RopeOp rope : ropes) {
    Value x = rope.getX();
    rope.replaceAllUsesWith(x);
    rope.erase();
    if (auto join = x.getDefiningOp<lm::JoinOp>())
      flatten(join);
  }
  return true;
}

namespace {
struct FoldRopePass : lmc::impl::FoldRopePassBase<FoldRopePass> {
  void runOnOperation() override {
    SmallVector<lm::AttentionGradOp> grads;
    getOperation().walk([&](lm::AttentionGradOp grad) { grads.push_back(grad); });
    for (lm::AttentionGradOp grad : grads)
      numFolded += fold(grad);
  }
};
} // namespace
