#include "runtime/step/Scalars.h"

#include "ground/plan/Names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace lmc {

static bool isWrittenByHost(const plan::Variable &variable) {
  return variable.setting() || variable.step_value() != plan::StepValue::None;
}

// Returns true if an upload to `range` would overwrite a variable that the host does not write.
static bool coversOthers(const plan::Plan &plan, const ArenaRange &range) {
  for (const plan::Variable *variable : *plan.variables()) {
    const plan::Slice &slice = *plan.slices()->Get(variable->slice());
    if (isWrittenByHost(*variable) || slice.arena() != range.arena)
      continue;
    if (slice.offset() < range.offset + range.bytes && range.offset < slice.offset() + slice.bytes())
      return true;
  }
  return false;
}

// Returns true for a vector that the host reads after each step.
static bool isRouterSum(const plan::Variable &variable) {
  return variable.name()->string_view().starts_with(names::kRouterSums + std::string("."));
}

// Returns the scalars that the host writes (if `written`), or the scalars and vectors that the host
// reads, with their memory ranges. Ranges that lie close together are joined into one range.
Result<Scalars::Block> Scalars::blockOf(const PlanFile &plan, bool written) {
  struct Found {
    ArenaRange range;
    Place place;
  };
  std::vector<Found> found;
  auto add = [&](const plan::Variable &variable) -> Result<void> {
    const plan::Slice &slice = *plan->slices()->Get(variable.slice());
    const std::string name = variable.name()->str();
    if ((slice.dtype() != plan::DType::F32 && slice.dtype() != plan::DType::F64) ||
        slice.bytes() < byteWidth(slice.dtype()))
      return userError("{}: variable '{}' is no f32 or f64 scalar", plan.path(), name);
    const bool isVector = !written && isRouterSum(variable);
    const uint64_t bytes = isVector ? slice.bytes() : byteWidth(slice.dtype());
    found.push_back({{slice.arena(), slice.offset(), bytes},
                     {.name = name,
                      .wide = slice.dtype() == plan::DType::F64,
                      .setting = variable.setting() ? variable.setting()->str() : "",
                      .stepValue = variable.step_value(),
                      .group = variable.group() ? variable.group()->str() : "",
                      .elements = bytes / byteWidth(slice.dtype()),
                      .isVector = isVector}});
    return {};
  };
  if (written) {
    for (const plan::Variable *variable : *plan->variables())
      if (isWrittenByHost(*variable))
        LMC_TRY(add(*variable));
  } else {
    for (const char *name : {names::kLoss, names::kGradNorm, names::kParamNorm, names::kUpdateNorm,
                             names::kEvalLoss}) {
      int index = plan.findVariable(name);
      if (index >= 0)
        LMC_TRY(add(*plan->variables()->Get(static_cast<flatbuffers::uoffset_t>(index))));
    }
    for (const plan::Variable *variable : *plan->variables())
      if (isRouterSum(*variable))
        LMC_TRY(add(*variable));
  }
  std::ranges::sort(found, {}, [](const Found &scalar) {
    return std::pair(scalar.range.arena, scalar.range.offset);
  });
  constexpr uint64_t kGap = 4096; // largest gap between two ranges that are joined, in bytes
  Block block;
  for (Found &scalar : found) {
    ArenaRange *last = block.ranges.empty() ? nullptr : &block.ranges.back();
    ArenaRange joined = last ? *last : ArenaRange();
    joined.bytes = scalar.range.offset + scalar.range.bytes - joined.offset;
    if (last && last->arena == scalar.range.arena && joined.bytes < last->bytes + kGap &&
        (!written || !coversOthers(*plan, joined))) {
      block.bytes += joined.bytes - last->bytes;
      *last = joined;
    } else {
      block.bytes = (block.bytes + 7) / 8 * 8 + scalar.range.bytes;
      block.ranges.push_back(scalar.range);
    }
    scalar.place.offset = block.bytes - scalar.range.bytes;
    block.places.push_back(std::move(scalar.place));
  }
  return block;
}

Result<std::unique_ptr<Scalars>> Scalars::open(const PlanFile &plan, Device &device) {
  LMC_LET(written, blockOf(plan, true));
  LMC_LET(read, blockOf(plan, false));
  LMC_LET(uploads, BufferRing::make(device, 2, written->bytes));
  LMC_LET(results, BufferRing::make(device, kPending, read->bytes));
  std::unique_ptr<Scalars> scalars(
      new Scalars(device, std::move(*uploads), std::move(*results)));
  scalars->values.resize(written->bytes);
  scalars->written = std::move(*written);
  scalars->read = std::move(*read);
  return scalars;
}

void Scalars::set(const Place &place, double value) {
  const auto narrow = static_cast<float>(value);
  if (place.wide)
    std::memcpy(values.data() + place.offset, &value, sizeof value);
  else
    std::memcpy(values.data() + place.offset, &narrow, sizeof narrow);
}

Result<void> Scalars::set(std::string_view name, double value) {
  for (const Place &place : written.places)
    if (place.name == name) {
      set(place, value);
      return {};
    }
  return userError("the plan has no scalar '{}' that the host writes", name);
}

Result<void> Scalars::setSettings(const SettingTable &settings) {
  for (Place &place : written.places) {
    if (!place.setting.empty()) {
      LMC_LET(value, settings.number(place.setting));
      set(place, *value);
    }
    if (!place.group.empty())
      LMC_SET(place.factor, settings.number(names::groupSetting(place.group, "lr_mult")));
  }
  return {};
}

void Scalars::setStepValue(plan::StepValue which, double value) {
  for (const Place &place : written.places)
    if (place.stepValue == which)
      set(place, value * place.factor);
}

// Calls copy(range, offset) for every element of `ranges`. `offset` is the range's offset in bytes
// in the host buffer.
template <typename Copy>
static Result<void> forRanges(const std::vector<ArenaRange> &ranges, Copy copy) {
  uint64_t offset = 0;
  for (const ArenaRange &range : ranges) {
    offset = (offset + 7) / 8 * 8;
    LMC_TRY(copy(range, offset));
    offset += range.bytes;
  }
  return {};
}

Result<void> Scalars::upload() {
  LMC_LET(buffer, uploads.next());
  std::memcpy((*buffer)->data(), values.data(), values.size());
  LMC_TRY(forRanges(written.ranges, [&](const ArenaRange &range, uint64_t offset) {
    return device.upload(range, **buffer, offset);
  }));
  return uploads.enqueued();
}

Result<void> Scalars::request() {
  if (results.isFull())
    return Error{"too many results of steps are waiting to be read", ExitCode::Failure};
  LMC_LET(buffer, results.next());
  LMC_TRY(forRanges(read.ranges, [&](const ArenaRange &range, uint64_t offset) {
    return device.download(range, **buffer, offset);
  }));
  return results.enqueued();
}

static double numberAt(const char *at, bool wide) {
  if (!wide) {
    float narrow = 0;
    std::memcpy(&narrow, at, sizeof narrow);
    return narrow;
  }
  double value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

Result<ScalarValues> Scalars::take() {
  LMC_LET(buffer, results.take());
  ScalarValues all;
  takenVectors.clear();
  for (const Place &place : read.places) {
    const char *at = (*buffer)->data() + place.offset;
    if (!place.isVector) {
      all[place.name] = numberAt(at, place.wide);
      continue;
    }
    std::vector<double> &vector = takenVectors[place.name];
    for (uint64_t i = 0; i < place.elements; ++i)
      vector.push_back(
          numberAt(at + i * (place.wide ? sizeof(double) : sizeof(float)), place.wide));
  }
  return all;
}

Result<double> valueOf(const ScalarValues &values, const char *name) {
  auto found = values.find(name);
  if (found == values.end())
    return userError("the plan has no variable '{}', which training needs", name);
  return found->second;
}

} // namespace lmc
