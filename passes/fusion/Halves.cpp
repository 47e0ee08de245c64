#include "passes/fusion/Halves.h"

using namespace mlir;
using namespace lmc;

lm::SplitOp lmc::halvesOf(Value gate, Value up) {
  auto split = gate.getDefiningOp<lm::SplitOp>();
  if (!split || split.getNumResults() != 2 || gate != split.getResult(0) ||
      up != split.getResult(1) || gate.getType() != up.getType())
    return {};
  return split;
}

lm::JoinOp lmc::joinOf(Value first, Value second) {
  if (!first.hasOneUse() || !second.hasOneUse())
    return {};
  auto join = dyn_cast<lm::JoinOp>(*first.user_begin());
  if (!join || join.getParts().size() != 2 || join.getParts()[0] != first ||
      join.getParts()[1] != second)
    return {};
  return join;
}
