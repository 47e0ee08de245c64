// Gives access to all variables of one kind (parameters, first moments, ...) as host tensors.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/device/Device.h"

#include <vector>

namespace lmc {

// A variable as a host tensor. `held` is the part that this rank has, `written` the part it writes.
struct StateTensor {
  TensorView view; // named like its parameter, without data
  int slice = 0;
  bool decays = false;    // true for a parameter with weight decay
  std::string group;      // parameter group; "": none
  HeldPart held, written; // parts in bytes that the rank has, and that it writes
};

// Returns the variables of `kind` in the plan's order. Leaves out variables that belong to no
// parameter: gradients of only one rank's tokens.
std::vector<StateTensor> stateTensors(const plan::Plan &plan, uint64_t rank,
                                      plan::VariableKind kind);

// Copies `part`, which begins at `slice`, to `data`. Leaves out the padding between rows.
void withoutPadding(const HeldPart &part, const char *slice, char *data);

// The variables of one kind in the plan's order, each under the name of its parameter.
struct DeviceTensors {
  std::vector<TensorView> tensors;
  std::vector<ByteRange> held;    // the part that this rank has
  std::vector<ByteRange> written; // the part that this rank writes if several ranks have it
  FetchTensor fetch;
  StoreTensor store;

  void add(const StateTensor &tensor);
};

// Returns the views of the variables of `kind`. A view has no data.
std::vector<TensorView> viewsOfKind(const PlanFile &plan, plan::VariableKind kind);

// Returns stateTensors() with functions that copy each tensor from and to the device. Each copy
// counts as progress of this rank. The arguments must outlive the result.
DeviceTensors tensorsOfKind(const PlanFile &plan, Device &device, World &world,
                            plan::VariableKind kind);

} // namespace lmc
