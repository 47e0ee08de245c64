#include "runtime/train/Inputs.h"

#include "runtime/plan/Names.h"

#include <fmt/format.h>

namespace lmc {

static Result<void> copyInput(const PlanFile &plan, Device &device, const char *name,
                              const int32_t *data) {
  int variable = plan.findVariable(name);
  if (variable < 0)
    return Error{fmt::format("{}: the plan has no variable '{}'", plan.path(), name)};
  auto index = plan->variables()->Get(static_cast<flatbuffers::uoffset_t>(variable))->slice();
  const plan::Slice &slice = *plan->slices()->Get(index);
  uint64_t bytes = plan->batch()->micro_batch_size() * plan->batch()->sequence_length() * 4;
  if (slice.dtype() != plan::DType::I32 || slice.bytes() != bytes)
    return Error{fmt::format("{}: variable '{}' is not i32 [mbs * seq]", plan.path(), name)};
  return device.copyIn(static_cast<int>(index), data, bytes);
}

bool hasDocumentMask(const PlanFile &plan) { return plan.findVariable(names::kStarts) >= 0; }

Result<void> copyInputs(const PlanFile &plan, Device &device, const int32_t *tokens,
                        const int32_t *targets, const int32_t *starts) {
  LMC_TRY(copyInput(plan, device, names::kTokens, tokens));
  if (hasDocumentMask(plan))
    LMC_TRY(copyInput(plan, device, names::kStarts, starts));
  return copyInput(plan, device, names::kTargets, targets);
}

} // namespace lmc
