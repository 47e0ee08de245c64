// Measures what each layer of a compiled plan keeps, needs and costs, for the choice among
// recompute options (RecomputeChoice.h).
//
// The bytes are those of the micro-step function with the highest peak. A layer keeps the bytes
// that its own commands write in the forward pass and that are still live at the first backward
// command. Its transient bytes are the maximum of live bytes in its backward pass, in addition to
// what this layer and the layers before it keep.
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

// Returns the measures of `plan`, with seconds that `model` predicts.
PlanMeasures measureLayers(const plan::Plan &plan, const cost::CostModel &model);

// Returns the predicted seconds per optimizer step of all micro-steps, for the measured model with
// `layers` layers instead. The first and the last layer count with their own seconds, each other
// layer with the mean of the other measured layers. `measures` has at least 3 layers, or exactly
// `layers`.
double microStepSeconds(const PlanMeasures &measures, size_t layers);

} // namespace lmc
