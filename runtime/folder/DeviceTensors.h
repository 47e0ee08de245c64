// Gives access to all variables of one kind (parameters, first moments, ...) as host tensors.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/device/Device.h"

#include <vector>

namespace lmc {

// A variable as a host tensor. This rank has the part `held` of it, and saves the part `written`.
struct StateTensor {
  TensorView view; // has the name of the parameter, and no data
  int slice = 0;
  bool decays = false;    // true for a parameter with weight decay
  std::string group;      // parameter group; "": none
  HeldPart held, written; // parts in bytes: the rank has `held`, and saves `written`
};

// Returns the variables of `kind` in the plan's order, without those that belong to no parameter.
// An example is a rank's gradient of its own tokens, which is not yet summed over all ranks.
std::vector<StateTensor> stateTensors(const plan::Plan &plan, uint64_t rank,
                                      plan::VariableKind kind);

// Copies `part`, whose first byte is at `slice`, to `data`. Leaves out the padding between rows.
void withoutPadding(const HeldPart &part, const char *slice, char *data);

// The variables of one kind in the plan's order, each under the name of its parameter.
struct DeviceTensors {
  std::vector<TensorView> tensors;
  std::vector<ByteRange> held;    // the part of each tensor that this rank has
  std::vector<ByteRange> written; // part of `held` that this rank saves; other ranks save the rest
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
