#include "dialects/plan/Plan.h"

using namespace mlir;
using namespace lmc::plan_ir;

LogicalResult ScatterAddOp::verify() {
  RankedTensorType ids = getIds().getType().getContent(), x = getX().getType().getContent(),
                   d = getD().getType().getContent();
  if (ids.getRank() != 1 || x.getRank() != 2 || d.getRank() != 2 ||
      ids.getDimSize(0) != x.getDimSize(0) || x.getDimSize(1) != d.getDimSize(1))
    return emitOpError("cannot add rows of ") << x << " at " << ids << " to " << d;
  return success();
}
