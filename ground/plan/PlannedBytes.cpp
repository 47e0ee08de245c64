#include "ground/plan/PlannedBytes.h"

#include "ground/plan/HeldPart.h"
#include "ground/plan/PlanFile.h"

namespace lmc {

uint64_t plannedBytes(const plan::Plan &plan) {
  uint64_t bytes = 0;
  for (const plan::Arena *arena : *plan.arenas())
    bytes = arena->bytes() > UINT64_MAX - bytes ? UINT64_MAX : bytes + arena->bytes();
  return bytes;
}

// Returns true if checkpoints contain the variable.
static bool isSaved(const plan::Variable &variable) {
  switch (variable.kind()) {
  case plan::VariableKind::Parameter:
    return true;
  case plan::VariableKind::Moment1:
  case plan::VariableKind::Moment2:
  case plan::VariableKind::Moment1Scale:
  case plan::VariableKind::Moment2Scale:
    return variable.parameter() != nullptr;
  default:
    return false;
  }
}

uint64_t stateCopyBytes(const plan::Plan &plan, uint64_t rank) {
  uint64_t bytes = 0;
  for (const plan::Variable *variable : *plan.variables()) {
    if (!isSaved(*variable))
      continue;
    const uint64_t width = byteWidth(plan.slices()->Get(variable->slice())->dtype());
    const HeldPart part = writtenPart(plan, *variable, rank).inBytes(width).withPadding();
    bytes += (part.count + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
  }
  return bytes;
}

} // namespace lmc
