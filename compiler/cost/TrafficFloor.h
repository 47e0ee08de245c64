// The least memory traffic of a training step apart from matrix products and attention: the traffic
// of fused kernels is measured against it.
#pragma once

#include "compiler/config/Config.h"

namespace lmc::cost {

// Bytes per token of one forward and backward pass without recompute.
struct TrafficFloor {
  double layers = 0; // of all layers together
  double head = 0;   // embedding, the norm without a residual add, head and loss
  double total() const { return layers + head; }
};

TrafficFloor trafficFloor(const ModelConfig &model, DataType compute);

} // namespace lmc::cost
