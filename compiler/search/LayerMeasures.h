// Measures what each layer of a compiled plan keeps, needs and costs. The choice among recompute
// options (RecomputeChoice.h) is made with these numbers.
//
// The bytes are those of the micro-step function with the highest peak. The kept bytes of a layer
// are those that its own commands write before the start of the backward pass (the first backward
// command) and that are still live then. The transient bytes of a layer are the maximum of bytes
// live in its backward pass, in addition to what this layer and the layers before it keep.
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
  std::vector<LayerMeasure> layers; // index N: ops named "layers.N/..."
  uint64_t fixedBytes = 0;          // bytes of the state arena
  uint64_t headAndLossBytes = 0;    // bytes that head and loss need in addition to kept bytes
  // Predicted seconds, in an optimizer step, of the micro-steps' commands that belong to no layer:
  // embedding, last norm, head and loss.
  double otherSeconds = 0;
};

// Returns the measures of `plan`, with seconds as `model` predicts them. Every packing needs
// at least the kept and transient bytes, because buffers live at the same time never overlap.
PlanMeasures measureLayers(const plan::Plan &plan, const cost::CostModel &model);

// Returns the predicted seconds of the micro-steps, in an optimizer step, of a model that has `layers`
// layers and is otherwise the measured one. The first and the last layer take what they were measured
// to take, and those between them the mean of the measured ones: gathers of the outermost layers'
// weights have fewer commands beside them. `measures` has at least 3 layers, or exactly `layers`.
double microStepSeconds(const PlanMeasures &measures, size_t layers);

} // namespace lmc
