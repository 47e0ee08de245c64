// What each layer of a compiled plan keeps, needs and takes: the input of the choice among
// recompute options (RecomputeChoice.h).
//
// The bytes are those of the micro-step function with the highest peak. The bytes that a layer
// keeps are those that its own commands write before the start of the backward pass (the first
// backward command) and that are still live then. The transient bytes of a layer are those live in
// its backward pass beyond what it and the layers before it keep.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "plan_generated.h"

#include <cstdint>
#include <vector>

namespace lmc {

struct LayerMeasure {
  uint64_t keptBytes = 0;
  uint64_t transientBytes = 0;
  double seconds = 0; // predicted, of the layer's commands in a step
};

struct PlanMeasures {
  std::vector<LayerMeasure> layers; // indexed by N of "layers.N/..."
  uint64_t fixedBytes = 0;          // state
  uint64_t turnBytes = 0;           // of head and loss, beyond what layers keep
};

// Measures a plan. Every number of bytes is a lower bound of what a packed plan takes, because
// different buffers that are live together never overlap.
PlanMeasures measureLayers(const plan::Plan &plan, const cost::DeviceSpec &spec);

} // namespace lmc
