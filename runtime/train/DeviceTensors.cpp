#include "runtime/train/DeviceTensors.h"

#include "runtime/plan/HeldPart.h"

#include <algorithm>
#include <memory>

namespace lmc {

DeviceTensors tensorsOfKind(const PlanFile &plan, Device &device, World &world,
                            plan::VariableKind kind) {
  DeviceTensors result;
  // A slice, and where in it the parts begin, in bytes.
  struct Place {
    int slice;
    ByteRange held, written; // of the tensor
    uint64_t heldAt, writtenAt;
  };
  auto places = std::make_shared<std::vector<Place>>();
  const auto rank = static_cast<uint64_t>(world.rank());
  for (const plan::Variable *variable : *plan->variables()) {
    const bool own = kind == plan::VariableKind::Parameter;
    if (variable->kind() != kind || (!own && !variable->parameter()))
      continue;
    const plan::Slice &slice = *plan->slices()->Get(variable->slice());
    const uint64_t width = byteWidth(slice.dtype());
    const HeldPart held = heldPart(*plan, *variable, rank % plan->shard_ranks()),
                   written = writtenPart(*plan, *variable, rank);
    TensorView view{(own ? variable->name() : variable->parameter())->str(),
                    slice.dtype(),
                    shapeOf(*plan, *variable),
                    nullptr,
                    width};
    for (uint64_t extent : view.shape)
      view.bytes *= extent;
    result.tensors.push_back(std::move(view));
    places->push_back({static_cast<int>(variable->slice()),
                       {held.first * width, held.count * width},
                       {written.first * width, written.count * width},
                       held.at * width,
                       written.at * width});
    result.held.push_back(places->back().held);
    result.written.push_back(places->back().written);
  }
  result.fetch = [places, &device, &world](size_t index, void *data) {
    world.progress().move();
    const Place &place = (*places)[index];
    return device.copyOut(place.slice, data, place.written.bytes, place.writtenAt);
  };
  result.store = [places, &device, &world](size_t index, const void *data, uint64_t bytes,
                                           uint64_t offset) -> Result<void> {
    world.progress().move();
    const Place &place = (*places)[index];
    const uint64_t begin = std::max(offset, place.held.offset);
    const uint64_t end = std::min(offset + bytes, place.held.offset + place.held.bytes);
    if (begin >= end)
      return {};
    return device.copyIn(place.slice, static_cast<const char *>(data) + (begin - offset),
                         end - begin, place.heldAt + (begin - place.held.offset));
  };
  return result;
}

} // namespace lmc
