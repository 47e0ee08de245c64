#include "dialects/interfaces/Attention.h"

using namespace mlir;
using namespace lmc;

LogicalResult lmc::expectEqual(Operation *op, int64_t actual, int64_t expected, StringRef what) {
  if (actual == expected)
    return success();
  return op->emitOpError("has ") << what << " " << actual << ", expected " << expected;
}

LogicalResult lmc::verifyLargest(Operation *op, Value largest, RankedTensorType lse,
                                 int64_t columns) {
  const auto expected = lse.clone(ArrayRef<int64_t>{lse.getDimSize(0), columns});
  if (!largest || largest.getType() == expected)
    return success();
  return op->emitOpError("has the largest values ") << largest.getType() << ", not " << expected;
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
