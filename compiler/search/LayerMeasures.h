// What each layer of a plan holds, needs and takes: the numbers that the choice among
// recompute options starts from.
//
// Of the micro-step with the highest peak: the turn is the command with which its backward
// pass begins. A layer keeps what commands of its own have made before the turn and is still
// held then; in its backward pass it needs a transient on top of what it and the layers
// before it keep (RecomputeChoice.h).
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "plan_generated.h"

#include <cstdint>
#include <vector>

namespace lmc {

struct LayerMeasure {
  uint64_t keptBytes = 0;
  uint64_t transientBytes = 0;
  double seconds = 0; // of its commands in a step, predicted
};

struct PlanMeasures {
  std::vector<LayerMeasure> layers; // by the number in "layers.N/..."
  uint64_t fixedBytes = 0;          // state
  uint64_t turnBytes = 0;           // outside of layers, while all that layers keep is held
};

// Every number of bytes is a lower bound of what a packed plan takes, as bytes of different
// buffers that are held at one moment never overlap.
PlanMeasures measureLayers(const plan::Plan &plan, const cost::DeviceSpec &spec);

} // namespace lmc
