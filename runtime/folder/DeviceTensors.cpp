#include "runtime/folder/DeviceTensors.h"

#include "ground/plan/HeldPart.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace lmc {

// In this file, a HeldPart's members count bytes, not elements.

void withoutPadding(const HeldPart &part, const char *slice, char *data) {
  for (const HeldPart &run : part.runs())
    std::memcpy(data + (run.first - part.first), slice + (run.at - part.at), run.count);
}

// Copies a part of a slice to `data`. Leaves out the padding between the rows of the slice.
static Result<void> copyOut(Device &device, int slice, const HeldPart &part, char *data) {
  if (part.pitch == 0)
    return device.copyOut(slice, data, part.count, part.at);
  std::vector<char> rows(part.withPadding().count);
  LMC_TRY(device.copyOut(slice, rows.data(), rows.size(), part.at));
  withoutPadding(part, rows.data(), data);
  return {};
}

// Copies `data` to a part of a slice. The padding between the rows becomes zeros.
static Result<void> copyIn(Device &device, int slice, const HeldPart &part, const char *data) {
  if (part.pitch == 0)
    return device.copyIn(slice, data, part.count, part.at);
  std::vector<char> rows(part.withPadding().count);
  for (const HeldPart &run : part.runs())
    std::memcpy(rows.data() + (run.at - part.at), data + (run.first - part.first), run.count);
  return device.copyIn(slice, rows.data(), rows.size(), part.at);
}

std::vector<StateTensor> stateTensors(const plan::Plan &plan, uint64_t rank,
                                      plan::VariableKind kind) {
  std::vector<StateTensor> result;
  for (const plan::Variable *variable : *plan.variables()) {
    const bool own = kind == plan::VariableKind::Parameter;
    if (variable->kind() != kind || (!own && !variable->parameter()))
      continue;
    const plan::Slice &slice = *plan.slices()->Get(variable->slice());
    const uint64_t width = byteWidth(slice.dtype());
    TensorView view{(own ? variable->name() : variable->parameter())->str(), slice.dtype(),
                    shapeOf(plan, *variable), nullptr, width};
    for (uint64_t extent : view.shape)
      view.bytes *= extent;
    result.push_back({std::move(view), static_cast<int>(variable->slice()),
                      variable->weight_decay(), variable->group() ? variable->group()->str() : "",
                      heldPart(plan, *variable, rank % plan.shard_ranks()).inBytes(width),
                      writtenPart(plan, *variable, rank).inBytes(width)});
  }
  return result;
}

std::vector<TensorView> viewsOfKind(const PlanFile &plan, plan::VariableKind kind) {
  std::vector<TensorView> views;
  for (StateTensor &tensor : stateTensors(*plan, /*rank=*/0, kind))
    views.push_back(std::move(tensor.view));
  return views;
}

void DeviceTensors::add(const StateTensor &tensor) {
  tensors.push_back(tensor.view);
  held.push_back({tensor.held.first, tensor.held.count});
  written.push_back({tensor.written.first, tensor.written.count});
}

DeviceTensors tensorsOfKind(const PlanFile &plan, Device &device, World &world,
                            plan::VariableKind kind) {
  DeviceTensors result;
  auto places = std::make_shared<std::vector<StateTensor>>(
      stateTensors(*plan, static_cast<uint64_t>(world.rank()), kind));
  for (const StateTensor &tensor : *places)
    result.add(tensor);
  result.fetch = [places, &device, &world](size_t index, void *data) {
    world.progress().move();
    const StateTensor &place = (*places)[index];
    return copyOut(device, place.slice, place.written, static_cast<char *>(data));
  };
  result.store = [places, &device, &world](size_t index, const void *data, uint64_t bytes,
                                           uint64_t offset) -> Result<void> {
    world.progress().move();
    const StateTensor &place = (*places)[index];
    const uint64_t begin = std::max(offset, place.held.first);
    const uint64_t end = std::min(offset + bytes, place.held.first + place.held.count);
    if (begin >= end)
      return {};
    return copyIn(device, place.slice, place.held.part(begin, end - begin),
                  static_cast<const char *>(data) + (begin - offset));
  };
  return result;
}

} // namespace lmc
