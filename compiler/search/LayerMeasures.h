// Measures what each layer of a compiled plan keeps, needs and costs, for the choice among
// recompute options (RecomputeChoice.h).
//
// The bytes are those of the micro-step function with the highest peak. A layer's kept bytes are
// the bytes that its own commands write before the start of the backward pass (the first backward
// command) and that are still live at that point. A layer's transient bytes are the maximum of live
// bytes in its backward pass, in addition to what this layer and the layers before it keep.
#pragma once

#include "compiler/cost/CostModel.h"

#include "plan_generated.h"

#include <cstdint>
#include <vector>

namespace lmc {

struct LayerMeasure {
  uint64_t keptBytes = 0;
  uint64_t transientBytes = 0;
  double seconds = 0; // predicted seconds of the layer's commands in an optimizer step
};

struct PlanMeasures {
  std::vector<LayerMeasure> layers; // indexed by the N in the names of ops, "layers.N/..."
  uint64_t headAndLossBytes = 0;    // bytes that head and loss need in addition to kept bytes
  // Predicted seconds per optimizer step of those commands in micro-steps that belong to no layer:
  // embedding, last norm, head and loss.
  double otherSeconds = 0;
};

// Returns the measures of `plan`, with seconds that `model` predicts. No packing can need less than
// the kept and transient bytes, because buffers that are live at the same time never overlap.
PlanMeasures measureLayers(const plan::Plan &plan, const cost::CostModel &model);

// Returns the predicted seconds per optimizer step of all micro-steps, for a model that has
// `layers` layers and is otherwise the measured one. The first and the last layer count with their
// own measured seconds, each other layer with the mean of the other measured layers: gathers of the
// outermost layers' weights have fewer commands beside them. `measures` has at least 3 layers, or
// exactly `layers`.
double microStepSeconds(const PlanMeasures &measures, size_t layers);

} // namespace lmc
