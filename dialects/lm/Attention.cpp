#include "dialects/interfaces/Attention.h"
#include "dialects/lm/Lm.h"

using namespace mlir;
using namespace lmc;
using namespace lmc::lm;

LogicalResult AttentionOp::verify() { return verifyAttention(*this, getResult().getType()); }
LogicalResult AttentionGradOp::verify() { return verifyAttentionGrad(*this); }

Gradients AttentionOp::buildVjp(OpBuilder &b, ValueRange cotangents) {
  if (!cotangents[0] || cotangents[1])
    return emitOpError("can be differentiated through its output only, not through lse");
  auto grad = AttentionGradOp::create(
      b, getLoc(), getQ().getType(), getK().getType(), getV().getType(), cotangents[0], getQ(),
      getK(), getV(), getResult(), getLse(), getStarts(), /*cos=*/Value(), /*sin=*/Value(),
      getHeadDim(), getSeq(), getScale(), getWindow());
  SmallVector<Value> gradients{grad.getDq(), grad.getDk(), grad.getDv()};
  if (getStarts())
    gradients.push_back(Value());
  return gradients;
}
