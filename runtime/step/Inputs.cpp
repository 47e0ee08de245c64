#include "runtime/step/Inputs.h"

#include "ground/plan/Names.h"
#include "runtime/device/Ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

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

// Fails if the plan, of a newer compiler, reads a part of the batch that upload() does not write.
static Result<void> checkAllAreKnown(const PlanFile &plan) {
  static constexpr std::string_view known[] = {names::kTokens, names::kTargets, names::kStarts,
                                               names::kPositions, names::kRowPositions};
  for (const plan::Variable *variable : *plan->variables())
    if (const std::string_view name = variable->name()->string_view();
        name.starts_with("batch.") && std::ranges::find(known, name) == std::end(known))
      return Error{fmt::format("{}: the plan reads '{}', which this lmc-run does not know; use the "
                               "lmc and the lmc-run of one release",
                               plan.path(), name)};
  return {};
}

Result<std::unique_ptr<Inputs>> Inputs::open(const PlanFile &plan, Device &device) {
  LMC_TRY(checkAllAreKnown(plan));
  std::vector<ArenaRange> places;
  for (const char *name : {names::kTokens, names::kTargets}) {
    auto place = placeOfInput(plan, name);
    LMC_TRY(place);
    places.push_back(*place);
  }
  std::optional<ArenaRange> optional[3];
  const char *const names[] = {names::kStarts, names::kPositions, names::kRowPositions};
  size_t count = places.size();
  for (size_t i = 0; i < std::size(names); ++i) {
    if (plan.findVariable(names[i]) < 0)
      continue;
    auto place = placeOfInput(plan, names[i]);
    LMC_TRY(place);
    optional[i] = *place;
    ++count;
  }
  auto ring = BufferRing::make(device, kAhead, count * places.front().bytes);
  LMC_TRY(ring);
  std::unique_ptr<Inputs> opened(new Inputs(device, std::move(*ring)));
  opened->places = std::move(places);
  opened->starts = optional[0];
  opened->positions = optional[1];
  opened->rowPositions = optional[2];
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
  auto copyPositions = [&](const ArenaRange &place, const int32_t *starts) -> Result<void> {
    std::vector<int32_t> values(place.bytes / sizeof(int32_t));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<int32_t>(i % sequenceLength) - (starts ? starts[i] : 0);
    return copy(place, values.data());
  };
  if (positions)
    LMC_TRY(copyPositions(*positions, documentStarts));
  if (rowPositions)
    LMC_TRY(copyPositions(*rowPositions, nullptr));
  return ring.enqueued();
}

} // namespace lmc
