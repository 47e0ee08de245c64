#include "dialects/interfaces/Attention.h"
#include "dialects/lm/Lm.h"

using namespace mlir;
using namespace lmc;
using namespace lmc::lm;

LogicalResult AttentionOp::verify() {
  if (failed(verifyAttention(*this, getResult().getType())))
    return failure();
  return verifyLargest(*this, getLargest(), getLse().getType(), getLse().getType().getDimSize(1));
}
LogicalResult AttentionGradOp::verify() { return verifyAttentionGrad(*this); }

Gradients AttentionOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  if (!cotangents[0] || llvm::any_of(cotangents.drop_front(), [](Value v) { return bool(v); }))
    return emitOpError("can be differentiated through its output only, not through lse");
  auto grad = AttentionGradOp::create(
      b, getLoc(), getQ().getType(), getK().getType(), getV().getType(), /*largest=*/Type(),
      cotangents[0], getQ(), getK(), getV(), getResult(), getLse(), getStarts(), /*cos=*/Value(),
      /*sin=*/Value(), getHeadDim(), getSeq(), getScale(), getWindow());
  SmallVector<Value> gradients{grad.getDq(), grad.getDk(), grad.getDv()};
  if (getStarts())
    gradients.push_back(Value());
  return gradients;
}
