#include "runtime/train/DeviceTensors.h"

#include "runtime/plan/HeldPart.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace lmc {

// The parts below are in bytes.

// Copies `part` of a slice to `data`, without the padding between rows.
static Result<void> copyOut(Device &device, int slice, const HeldPart &part, char *data) {
  if (part.pitch == 0)
    return device.copyOut(slice, data, part.count, part.at);
  std::vector<char> rows(part.withPadding().count);
  LMC_TRY(device.copyOut(slice, rows.data(), rows.size(), part.at));
  for (HeldPart rest = part; rest.count > 0;) {
    const HeldPart run = rest.run();
    std::memcpy(data + (run.first - part.first), rows.data() + (run.at - part.at), run.count);
    rest = rest.part(run.first + run.count, rest.count - run.count);
  }
  return {};
}

// Copies `data` to `part` of a slice. The padding between rows becomes zeros.
static Result<void> copyIn(Device &device, int slice, const HeldPart &part, const char *data) {
  if (part.pitch == 0)
    return device.copyIn(slice, data, part.count, part.at);
  std::vector<char> rows(part.withPadding().count);
  for (HeldPart rest = part; rest.count > 0;) {
    const HeldPart run = rest.run();
    std::memcpy(rows.data() + (run.at - part.at), data + (run.first - part.first), run.count);
    rest = rest.part(run.first + run.count, rest.count - run.count);
  }
  return device.copyIn(slice, rows.data(), rows.size(), part.at);
}

DeviceTensors tensorsOfKind(const PlanFile &plan, Device &device, World &world,
                            plan::VariableKind kind) {
  DeviceTensors result;
  struct Place {
    int slice;
    HeldPart held, written; // in bytes
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
    places->push_back(
        {static_cast<int>(variable->slice()), held.inBytes(width), written.inBytes(width)});
    result.held.push_back({places->back().held.first, places->back().held.count});
    result.written.push_back({places->back().written.first, places->back().written.count});
  }
  result.fetch = [places, &device, &world](size_t index, void *data) {
    world.progress().move();
    const Place &place = (*places)[index];
    return copyOut(device, place.slice, place.written, static_cast<char *>(data));
  };
  result.store = [places, &device, &world](size_t index, const void *data, uint64_t bytes,
                                           uint64_t offset) -> Result<void> {
    world.progress().move();
    const Place &place = (*places)[index];
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
