// Gives access to all variables of one kind (parameters, a moment, ...) as host tensors, for
// checkpoints, imports, exports and dumps.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/device/Device.h"

#include <vector>

namespace lmc {

// The variables of one kind in the plan's order, each under the name of its parameter. `fetch`
// reads tensor i from the device, `store` writes it to the device.
struct DeviceTensors {
  std::vector<TensorView> tensors;
  FetchTensor fetch;
  StoreTensor store;
};

// Returns the variables of `kind`. `plan` and `device` must outlive the result.
DeviceTensors tensorsOfKind(const PlanFile &plan, Device &device, plan::VariableKind kind);

} // namespace lmc
