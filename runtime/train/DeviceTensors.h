// All variables of one kind as host tensors, for checkpoints, imports, exports and dumps.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/device/Device.h"

#include <vector>

namespace lmc {

// The tensors in the plan's order. Each has the name of its parameter. `fetch` reads tensor i from
// the device, `store` writes it to the device.
struct DeviceTensors {
  std::vector<TensorView> tensors;
  FetchTensor fetch;
  StoreTensor store;
};

// `plan` and `device` must outlive the result.
DeviceTensors tensorsOfKind(const PlanFile &plan, Device &device, plan::VariableKind kind);

} // namespace lmc
