#include "runtime/train/DeviceTensors.h"

#include <memory>

namespace lmc {

DeviceTensors tensorsOfKind(const PlanFile &plan, Device &device, plan::VariableKind kind) {
  DeviceTensors result;
  struct Place {
    int slice;
    uint64_t bytes;
  };
  auto places = std::make_shared<std::vector<Place>>();
  for (const plan::Variable *variable : *plan->variables()) {
    if (variable->kind() != kind)
      continue;
    const plan::Slice &slice = *plan->slices()->Get(variable->slice());
    bool own = kind == plan::VariableKind::Parameter || !variable->parameter();
    TensorView view{(own ? variable->name() : variable->parameter())->str(),
                    slice.dtype(),
                    {},
                    nullptr,
                    slice.bytes()};
    if (slice.shape())
      view.shape.assign(slice.shape()->begin(), slice.shape()->end());
    result.tensors.push_back(std::move(view));
    places->push_back({static_cast<int>(variable->slice()), slice.bytes()});
  }
  result.fetch = [places, &device](size_t index, void *data) {
    return device.copyOut((*places)[index].slice, data, (*places)[index].bytes);
  };
  result.store = [places, &device](size_t index, const void *data, uint64_t bytes,
                                   uint64_t offset) {
    return device.copyIn((*places)[index].slice, data, bytes, offset);
  };
  return result;
}

} // namespace lmc
