// lm-fold-rope: makes the rotation that undoes rope in the backward pass part of attention's
// gradient. The gradient's kernels hold the values to be rotated in registers, not yet rounded.
//
//   %dq, %dk, %dv = lm.attention_grad ...          %dq, %dk, %dv = lm.attention_grad ...
//   %x = lm.join %dq, %dk                    =>        rope %cos, %sin
//   %y = lm.rope %x, %cos, %sin {inverse}          %z = lm.join %dq, %dk, %dv
//   %z = lm.join %y, %dv
//
// In the forward pass rope stays an op of its own: many thread blocks read the same rotated keys,
// and the backward pass reads them again.
#include "passes/fusion/Passes.h"

#include "dialects/lm/Lm.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/SetVector.h"

namespace lmc {
#define GEN_PASS_DEF_FOLDROPEPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// Returns the op that reads `value` if it is the only reader and an inverse rope. The rope may read
// the value itself or a join of values of `rotated` only.
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

// Returns true if `rope` computes the same rotation as the operands cos and sin of attention_grad.
static bool canFold(lm::RopeOp rope, lm::AttentionGradOp grad) {
  auto table = cast<RankedTensorType>(rope.getCos().getType());
  return rope.getHeadDim() == grad.getHeadDim() && table.getElementType().isF32() &&
         table.getDimSize(0) == int64_t(grad.getSeq());
}

static bool isKnownAt(Value value, Operation *op) {
  Operation *producer = value.getDefiningOp();
  return !producer || (producer->getBlock() == op->getBlock() && producer->isBeforeInBlock(op));
}

// If the only reader of a join is another join, replaces the inner join by its operands, so that
// these are written directly to their final place.
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

// Tries to make the rotations of dq and dk part of `grad`; returns true if it did.
static bool fold(lm::AttentionGradOp grad) {
  if (grad.getCos())
    return false;
  Value dq = grad.getDq(), dk = grad.getDk();
  lm::RopeOp queries = rotationOf(dq, {dq, dk}), keys = rotationOf(dk, {dq, dk});
  if (!queries || !keys || !canFold(queries, grad) || !canFold(keys, grad) ||
      queries.getCos() != keys.getCos() || queries.getSin() != keys.getSin() ||
      !isKnownAt(queries.getCos(), grad) || !isKnownAt(queries.getSin(), grad))
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
