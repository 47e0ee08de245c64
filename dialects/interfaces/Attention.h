// The verifiers of causal grouped-query attention. Attention ops of several dialects share them.
#pragma once

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"

namespace lmc {

// Emits "has WHAT ACTUAL, expected EXPECTED" on `op` unless the two numbers are equal.
mlir::LogicalResult expectEqual(mlir::Operation *op, int64_t actual, int64_t expected,
                                llvm::StringRef what);

// Verifies that `largest` is null, or has the type of lse with `columns` columns.
mlir::LogicalResult verifyLargest(mlir::Operation *op, mlir::Value largest,
                                  mlir::RankedTensorType lse, int64_t columns);

// Emits an error on `op` if its operands' types do not match. `outType` is the output's type.
template <typename Op> mlir::LogicalResult verifyAttention(Op op, mlir::RankedTensorType outType) {
  mlir::RankedTensorType q = op.getQ().getType(), k = op.getK().getType(),
                         lse = op.getLse().getType();
  int64_t headDim = op.getHeadDim(), seq = op.getSeq(), window = op.getWindow();
  int64_t tokens = q.getDimSize(0);
  if (headDim <= 0 || q.getDimSize(1) % headDim || k.getDimSize(1) % headDim)
    return op.emitOpError("has features that are not a multiple of head_dim ") << headDim;
  int64_t heads = q.getDimSize(1) / headDim, kvHeads = k.getDimSize(1) / headDim;
  if (kvHeads == 0 || heads % kvHeads)
    return op.emitOpError("has ") << heads << " heads, not a multiple of " << kvHeads
                                  << " key-value heads";
  if (seq <= 0 || tokens % seq)
    return op.emitOpError("has ") << tokens << " tokens, not a multiple of seq " << seq;
  if (window < 0)
    return op.emitOpError("has window ") << window << ", expected at least 0";
  if (k != op.getV().getType())
    return op.emitOpError("needs k and v of one type");
  if (outType != q)
    return op.emitOpError("must keep the type of q");
  if (k.getElementType() != q.getElementType())
    return op.emitOpError("has queries of ")
           << q.getElementType() << " but keys of " << k.getElementType();
  if (lse.getElementType().isF64() != q.getElementType().isF64())
    return op.emitOpError("has lse of ")
           << lse.getElementType() << " for queries of " << q.getElementType();
  if (mlir::failed(expectEqual(op, k.getDimSize(0), tokens, "key rows")) ||
      mlir::failed(expectEqual(op, lse.getDimSize(0), tokens, "lse rows")) ||
      mlir::failed(expectEqual(op, lse.getDimSize(1), heads, "lse columns")))
    return mlir::failure();
  if (!op.getStarts())
    return mlir::success();
  return expectEqual(op, op.getStarts().getType().getDimSize(0), tokens, "starts");
}

// Verifies that the rotation tables are both null, or both have the type f32 [seq, headDim / 2].
mlir::LogicalResult verifyRotation(mlir::Operation *op, mlir::Value cos, mlir::Value sin,
                                   int64_t seq, int64_t headDim);

// Verifies a gradient op: dq, dk, dv and dout must have the same types as q, k, v and out.
template <typename Op> mlir::LogicalResult verifyAttentionGrad(Op op) {
  if (mlir::failed(verifyAttention(op, op.getOut().getType())))
    return mlir::failure();
  if (op.getDout().getType() != op.getOut().getType())
    return op.emitOpError("needs dout of the type of out");
  if (op.getDq().getType() != op.getQ().getType() || op.getDk().getType() != op.getK().getType() ||
      op.getDv().getType() != op.getV().getType())
    return op.emitOpError("must give dq, dk and dv the types of q, k and v");
  const int64_t heads = op.getLse().getType().getDimSize(1);
  const int64_t kvHeads = op.getK().getType().getDimSize(1) / int64_t(op.getHeadDim());
  if (mlir::failed(verifyLargest(op, op.getLargest(), op.getLse().getType(), heads + 2 * kvHeads)))
    return mlir::failure();
  return verifyRotation(op, op.getCos(), op.getSin(), int64_t(op.getSeq()),
                        int64_t(op.getHeadDim()));
}

} // namespace lmc
