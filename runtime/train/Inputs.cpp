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

bool readsDocuments(const PlanFile &plan) {
  return hasDocumentMask(plan) || plan.findVariable(names::kPositions) >= 0;
}

Result<std::unique_ptr<Inputs>> Inputs::open(const PlanFile &plan, Device &device) {
  std::vector<ArenaRange> places;
  for (const char *name : {names::kTokens, names::kTargets}) {
    auto place = placeOfInput(plan, name);
    LMC_TRY(place);
    places.push_back(*place);
  }
  std::optional<ArenaRange> ofDocuments[2];
  const char *const names[] = {names::kStarts, names::kPositions};
  for (size_t i = 0; i < 2; ++i) {
    if (plan.findVariable(names[i]) < 0)
      continue;
    auto place = placeOfInput(plan, names[i]);
    LMC_TRY(place);
    ofDocuments[i] = *place;
  }
  const size_t count =
      places.size() + size_t(ofDocuments[0].has_value()) + size_t(ofDocuments[1].has_value());
  auto ring = BufferRing::make(device, kAhead, count * places.front().bytes);
  if (!ring)
    return ring.error();
  std::unique_ptr<Inputs> opened(new Inputs(device, std::move(*ring)));
  opened->places = std::move(places);
  opened->starts = ofDocuments[0];
  opened->positions = ofDocuments[1];
  opened->sequenceLength = plan->batch()->sequence_length();
  return opened;
}

Result<void> Inputs::upload(const int32_t *tokens, const int32_t *targets,
                            const int32_t *documentStarts) {
  auto buffer = ring.next();
  LMC_TRY(buffer);
  uint64_t offset = 0;
  auto copy = [&](const ArenaRange &place, const int32_t *source) -> Result<void> {
    std::memcpy((*buffer)->data() + offset, source, place.bytes);
    LMC_TRY(device.upload(place, **buffer, offset));
    offset += place.bytes;
    return {};
  };
  LMC_TRY(copy(places[0], tokens));
  LMC_TRY(copy(places[1], targets));
  if (starts)
    LMC_TRY(copy(*starts, documentStarts));
  if (positions) {
    std::vector<int32_t> inDocument(positions->bytes / sizeof(int32_t));
    for (size_t i = 0; i < inDocument.size(); ++i)
      inDocument[i] = static_cast<int32_t>(i % sequenceLength) - documentStarts[i];
    LMC_TRY(copy(*positions, inDocument.data()));
  }
  return ring.enqueued();
}

} // namespace lmc
