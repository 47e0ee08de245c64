// The shapes of causal grouped-query attention, which ops of several levels share.
#pragma once

#include "mlir/IR/Operation.h"

namespace lmc {

// The operands and results of an attention op; lm.attention describes them.
struct AttentionShape {
  mlir::Value q, k, v;    // q is [tokens, heads * headDim], k and v are [tokens, kvHeads * headDim]
  mlir::Value starts;     // [tokens], or null
  mlir::Value out;        // shaped as q
  mlir::Value lse;        // [tokens, heads], f32; f64 where q is f64
  int64_t headDim, seq, window;

  template <typename Op>
  AttentionShape(Op op, mlir::Value out)
      : q(op.getQ()), k(op.getK()), v(op.getV()), starts(op.getStarts()), out(out),
        lse(op.getLse()), headDim(int64_t(op.getHeadDim())), seq(int64_t(op.getSeq())),
        window(int64_t(op.getWindow())) {}
};

// Emits "has WHAT ACTUAL, expected EXPECTED" on `op` where the two numbers differ.
mlir::LogicalResult expectEqual(mlir::Operation *op, int64_t actual, int64_t expected,
                                llvm::StringRef what);

// Emits an error on `op` if the types do not match. All must be ranked: `starts` of rank 1, the
// others of rank 2.
mlir::LogicalResult verifyAttention(mlir::Operation *op, const AttentionShape &shape);

// Verifies the tables of lm.attention_grad's rotation: both or neither, f32 [seq, headDim / 2].
mlir::LogicalResult verifyRotation(mlir::Operation *op, mlir::Value cos, mlir::Value sin,
                                   int64_t seq, int64_t headDim);

// Verifies a gradient op: dq, dk, dv and dout must have the types of q, k, v and out.
template <typename Op> mlir::LogicalResult verifyAttentionGrad(Op op) {
  if (mlir::failed(verifyAttention(op, AttentionShape(op, op.getOut()))))
    return mlir::failure();
  if (op.getDout().getType() != op.getOut().getType())
    return op.emitOpError("needs dout of the type of out");
  if (op.getDq().getType() != op.getQ().getType() || op.getDk().getType() != op.getK().getType() ||
      op.getDv().getType() != op.getV().getType())
    return op.emitOpError("must give dq, dk and dv the types of q, k and v");
  return verifyRotation(op, op.getCos(), op.getSin(), int64_t(op.getSeq()),
                        int64_t(op.getHeadDim()));
}

} // namespace lmc
