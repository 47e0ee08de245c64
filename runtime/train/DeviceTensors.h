// Gives access to all variables of one kind (parameters, a moment, ...) as host tensors, for
// checkpoints, imports, exports and dumps.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/device/Device.h"

#include <vector>

namespace lmc {

// The variables of one kind in the plan's order, each under the name of its parameter. `fetch`
// reads the bytes written[i] of tensor i from the device, and `store` writes those of held[i] to it.
struct DeviceTensors {
  std::vector<TensorView> tensors;
  std::vector<ByteRange> held;    // what this rank has
  std::vector<ByteRange> written; // what it writes where several ranks have the same
  FetchTensor fetch;
  StoreTensor store;
};

// Returns the variables of `kind`; a gradient of a rank's own tokens is none. Each call of `fetch`
// or `store` counts as progress of this rank. `plan`, `device` and `world` must outlive the result.
DeviceTensors tensorsOfKind(const PlanFile &plan, Device &device, World &world,
                            plan::VariableKind kind);

} // namespace lmc
