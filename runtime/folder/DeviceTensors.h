// Gives access to all variables of one kind (parameters, a moment, ...) as host tensors, for
// checkpoints, imports, exports and dumps.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/device/Device.h"

#include <vector>

namespace lmc {

// A variable as a host tensor, and where a rank has its part.
struct StateTensor {
  TensorView view; // under the name of its parameter, without data
  int slice = 0;
  bool decays = false;    // a parameter with weight decay
  std::string group;      // parameter group; "": none
  HeldPart held, written; // in bytes: what the rank has, and what it writes where several have it
};

// Returns the variables of `kind` in the plan's order; a gradient of a rank's own tokens is none.
std::vector<StateTensor> stateTensors(const plan::Plan &plan, uint64_t rank,
                                      plan::VariableKind kind);

// Copies the elements of `part`, a piece of a slice that begins at `slice`, to `data`, without the
// padding between rows.
void withoutPadding(const HeldPart &part, const char *slice, char *data);

// The variables of one kind in the plan's order, each under the name of its parameter. `fetch`
// reads the bytes written[i] of tensor i from the device, and `store` writes those of held[i] to it.
struct DeviceTensors {
  std::vector<TensorView> tensors;
  std::vector<ByteRange> held;    // what this rank has
  std::vector<ByteRange> written; // what it writes where several ranks have the same
  FetchTensor fetch;
  StoreTensor store;

  void add(const StateTensor &tensor);
};

// Returns the names, dtypes and shapes of the variables of `kind` in the plan's order, as they are
// below; their `data` is null.
std::vector<TensorView> viewsOfKind(const PlanFile &plan, plan::VariableKind kind);

// Returns the variables of `kind`, as stateTensors() does. Each call of `fetch`
// or `store` counts as progress of this rank. `plan`, `device` and `world` must outlive the result.
DeviceTensors tensorsOfKind(const PlanFile &plan, Device &device, World &world,
                            plan::VariableKind kind);

} // namespace lmc
