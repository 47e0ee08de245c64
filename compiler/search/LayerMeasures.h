// Measures the bytes and the seconds of each layer of a compiled plan. From these measures the
// compiler chooses a recompute option per layer (RecomputeChoice.h).
//
// All bytes are from the micro-step function with the highest peak. A layer's kept bytes are the
// bytes that its forward commands write and that are still live when the backward pass starts. Its
// transient bytes are the maximum of live bytes in its backward pass, without the bytes that this
// layer and the layers before it keep.
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
  // Predicted seconds per optimizer step of the micro-steps' commands outside of layers: embedding,
  // last norm, head and loss.
  double otherSeconds = 0;
};

// Measures the layers of `plan`; `model` predicts the seconds.
PlanMeasures measureLayers(const plan::Plan &plan, const cost::CostModel &model);

// Returns the predicted seconds per optimizer step of all micro-steps, for a model with `layers`
// layers. `measures` may come from a shorter model with at least 3 layers. The inner layers (all
// but first and last) then take the mean time of the measured inner layers.
double microStepSeconds(const PlanMeasures &measures, size_t layers);

} // namespace lmc
