#include "runtime/step/Inputs.h"

#include "ground/plan/Names.h"
#include "runtime/device/Ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

namespace lmc {

// The inputs that upload() writes. Every plan has batch.tokens and batch.targets.
static constexpr std::array kNames = {names::kTokens, names::kTargets, names::kStarts,
                                      names::kPositions, names::kRowPositions};
static constexpr size_t kRequired = 2;

static Result<ArenaRange> placeOfInput(const PlanFile &plan, const char *name) {
  int variable = plan.findVariable(name);
  if (variable < 0)
    return userError("{}: the plan has no variable '{}'", plan.path(), name);
  auto index = plan->variables()->Get(static_cast<flatbuffers::uoffset_t>(variable))->slice();
  const plan::Slice &slice = *plan->slices()->Get(index);
  uint64_t bytes = plan->batch()->micro_batch_size() * plan->batch()->sequence_length() * 4;
  if (slice.dtype() != plan::DType::I32 || slice.bytes() != bytes)
    return userError("{}: variable '{}' is not i32 [mbs * seq]", plan.path(), name);
  return rangeInSlice(&*plan, static_cast<int>(index), bytes, 0);
}

bool hasDocumentMask(const PlanFile &plan) { return plan.findVariable(names::kStarts) >= 0; }

bool readsDocuments(const PlanFile &plan) {
  return hasDocumentMask(plan) || plan.findVariable(names::kPositions) >= 0;
}

// Returns an error if upload() does not know an input of the plan: a newer lmc made such a plan.
static Result<void> checkAllAreKnown(const PlanFile &plan) {
  for (const plan::Variable *variable : *plan->variables())
    if (const std::string_view name = variable->name()->string_view();
        name.starts_with("batch.") && std::ranges::find(kNames, name) == kNames.end())
      return userError("{}: the plan reads '{}', which this lmc-run does not know; use the lmc and "
                       "the lmc-run of one release",
                       plan.path(), name);
  return {};
}

Result<std::unique_ptr<Inputs>> Inputs::open(const PlanFile &plan, Device &device) {
  LMC_TRY(checkAllAreKnown(plan));
  std::array<std::optional<ArenaRange>, kNames.size()> places;
  uint64_t bytes = 0;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (i >= kRequired && plan.findVariable(kNames[i]) < 0)
      continue;
    LMC_SET(places[i], placeOfInput(plan, kNames[i]));
    bytes += places[i]->bytes;
  }
  LMC_LET(ring, BufferRing::make(device, kAhead, bytes));
  std::unique_ptr<Inputs> opened(new Inputs(device, std::move(*ring)));
  opened->places = places;
  opened->sequenceLength = plan->batch()->sequence_length();
  return opened;
}

Result<void> Inputs::upload(const int32_t *tokens, const int32_t *targets,
                            const int32_t *documentStarts) {
  LMC_LET(buffer, ring.next());
  uint64_t offset = 0;
  auto copy = [&](const std::optional<ArenaRange> &place, const int32_t *source) -> Result<void> {
    if (!place)
      return {};
    std::memcpy((*buffer)->data() + offset, source, place->bytes);
    LMC_TRY(device.upload(*place, **buffer, offset));
    offset += place->bytes;
    return {};
  };
  LMC_TRY(copy(places[0], tokens));
  LMC_TRY(copy(places[1], targets));
  LMC_TRY(copy(places[2], documentStarts));
  auto copyPositions = [&](const std::optional<ArenaRange> &place, const int32_t *starts) {
    std::vector<int32_t> values(place ? place->bytes / sizeof(int32_t) : 0);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<int32_t>(i % sequenceLength) - (starts ? starts[i] : 0);
    return copy(place, values.data());
  };
  LMC_TRY(copyPositions(places[3], documentStarts));
  LMC_TRY(copyPositions(places[4], nullptr));
  return ring.enqueued();
}

} // namespace lmc
