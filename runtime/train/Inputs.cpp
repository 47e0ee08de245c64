#include "runtime/train/Inputs.h"

#include "runtime/device/Ranges.h"
#include "runtime/plan/Names.h"

#include <fmt/format.h>

#include <cstring>

namespace lmc {

static Result<ArenaRange> placeOfInput(const PlanFile &plan, const char *name) {
  int variable = plan.findVariable(name);
  if (variable < 0)
    return Error{fmt::format("{}: the plan has no variable '{}'", plan.path(), name)};
  auto index = plan->variables()->Get(static_cast<flatbuffers::uoffset_t>(variable))->slice();
  const plan::Slice &slice = *plan->slices()->Get(index);
  uint64_t bytes = plan->batch()->micro_batch_size() * plan->batch()->sequence_length() * 4;
  if (slice.dtype() != plan::DType::I32 || slice.bytes() != bytes)
    return Error{fmt::format("{}: variable '{}' is not i32 [mbs * seq]", plan.path(), name)};
  return rangeInSlice(&*plan, static_cast<int>(index), bytes, 0);
}

bool hasDocumentMask(const PlanFile &plan) { return plan.findVariable(names::kStarts) >= 0; }

Result<std::unique_ptr<Inputs>> Inputs::open(const PlanFile &plan, Device &device) {
  std::vector<ArenaRange> places;
  std::vector<const char *> inputs = {names::kTokens, names::kTargets};
  if (hasDocumentMask(plan))
    inputs.push_back(names::kStarts);
  for (const char *name : inputs) {
    auto place = placeOfInput(plan, name);
    LMC_TRY(place);
    places.push_back(*place);
  }
  auto ring = BufferRing::make(device, kAhead, places.size() * places.front().bytes);
  if (!ring)
    return ring.error();
  std::unique_ptr<Inputs> opened(new Inputs(device, std::move(*ring)));
  opened->places = std::move(places);
  return opened;
}

Result<void> Inputs::upload(const int32_t *tokens, const int32_t *targets, const int32_t *starts) {
  auto buffer = ring.next();
  LMC_TRY(buffer);
  const int32_t *sources[] = {tokens, targets, starts};
  uint64_t offset = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    std::memcpy((*buffer)->data() + offset, sources[i], places[i].bytes);
    LMC_TRY(device.upload(places[i], **buffer, offset));
    offset += places[i].bytes;
  }
  return ring.enqueued();
}

} // namespace lmc
