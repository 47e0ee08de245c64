// What each layer of a plan holds, needs and takes: the numbers that the choice among
// recompute options starts from.
//
// Of the micro-step with the highest peak: the turn is the command with which its backward
// pass begins. A layer keeps what commands of its own have made before the turn and is still
// held then.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "plan_generated.h"

#include <cstdint>
#include <vector>

namespace lmc {

struct LayerMeasure {
  uint64_t keptBytes = 0;
  uint64_t peakBytes = 0; // the most workspace in use in its backward pass
  double seconds = 0;     // of its commands in a step, predicted
};

struct PlanMeasures {
  std::vector<LayerMeasure> layers; // by the number in "layers.N/..."
  uint64_t turnPeakBytes = 0;       // the most workspace between the layers' two passes
};

// Bytes are those that must be held: no packing takes less.
PlanMeasures measureLayers(const plan::Plan &plan, const cost::DeviceSpec &spec);

} // namespace lmc
