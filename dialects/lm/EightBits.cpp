#include "dialects/lm/EightBits.h"

bool lmc::lm::hasOwnScale(QuantizeOp cast) {
  auto scale = cast.getScale().getDefiningOp<Fp8ScaleOp>();
  auto max = scale ? scale.getMax().getDefiningOp<MaxAbsOp>() : MaxAbsOp();
  return max && max.getX() == cast.getX();
}
