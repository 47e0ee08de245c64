#include "dialects/interfaces/Attention.h"

#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;
using namespace lmc;

LogicalResult lmc::expectEqual(Operation *op, int64_t actual, int64_t expected, StringRef what) {
  if (actual == expected)
    return success();
  return op->emitOpError("has ") << what << " " << actual << ", expected " << expected;
}

LogicalResult lmc::verifyAttention(Operation *op, const AttentionShape &shape) {
  auto q = cast<RankedTensorType>(shape.q.getType()), k = cast<RankedTensorType>(shape.k.getType());
  auto lse = cast<RankedTensorType>(shape.lse.getType());
  int64_t headDim = shape.headDim, tokens = q.getDimSize(0);
  if (headDim <= 0 || q.getDimSize(1) % headDim || k.getDimSize(1) % headDim)
    return op->emitOpError("has features that are not a multiple of head_dim ") << headDim;
  int64_t heads = q.getDimSize(1) / headDim, kvHeads = k.getDimSize(1) / headDim;
  if (kvHeads == 0 || heads % kvHeads)
    return op->emitOpError("has ")
           << heads << " heads, not a multiple of " << kvHeads << " key-value heads";
  if (shape.seq <= 0 || tokens % shape.seq)
    return op->emitOpError("has ") << tokens << " tokens, not a multiple of seq " << shape.seq;
  if (shape.window < 0)
    return op->emitOpError("has window ") << shape.window << ", expected at least 0";
  if (k != shape.v.getType())
    return op->emitOpError("needs k and v of one type");
  if (shape.out.getType() != q)
    return op->emitOpError("must keep the type of q");
  if (k.getElementType() != q.getElementType())
    return op->emitOpError("has queries of ") << q.getElementType() << " but keys of "
                                              << k.getElementType();
  if (lse.getElementType().isF64() != q.getElementType().isF64())
    return op->emitOpError("has lse of ") << lse.getElementType() << " for queries of "
                                          << q.getElementType();
  if (failed(expectEqual(op, k.getDimSize(0), tokens, "key rows")) ||
      failed(expectEqual(op, lse.getDimSize(0), tokens, "lse rows")) ||
      failed(expectEqual(op, lse.getDimSize(1), heads, "lse columns")))
    return failure();
  if (!shape.starts)
    return success();
  return expectEqual(op, cast<RankedTensorType>(shape.starts.getType()).getDimSize(0), tokens,
                     "starts");
}

LogicalResult lmc::verifyRotation(Operation *op, Value cos, Value sin, int64_t seq,
                                  int64_t headDim) {
  if (!cos && !sin)
    return success();
  if (!cos || !sin)
    return op->emitOpError("needs cos and sin, or neither");
  auto table = RankedTensorType::get({seq, headDim / 2}, Float32Type::get(op->getContext()));
  for (Value given : {cos, sin})
    if (given.getType() != table)
      return op->emitOpError("has rotation tables of ") << given.getType() << ", not " << table;
  if (headDim % 2)
    return op->emitOpError("rotates heads of an odd head_dim ") << headDim;
  return success();
}
