// The least memory traffic of everything in a training step that is neither a matrix
// product nor attention: what fused kernels are measured against.
#pragma once

#include "compiler/config/Config.h"

namespace lmc::cost {

// Bytes per token of a forward and a backward pass, nothing recomputed.
struct TrafficFloor {
  double layers = 0; // of all of them
  double head = 0;   // embedding, the first norm's remainder, head and loss
  double total() const { return layers + head; }
};

TrafficFloor trafficFloor(const ModelConfig &model, DataType compute);

} // namespace lmc::cost
