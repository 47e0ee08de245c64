// The update of each tensor by a step. OUT/updates.jsonl has a line for each step whose updates are
// known: a step whose checkpoint or export is written in the background.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

struct TensorUpdate {
  std::string name;      // Hugging Face's name
  bool isMatrix = false; // false for norms and biases
  // L2 norm of the update / L2 norm of the weights before it; absent if the weights were zero.
  std::optional<double> ratio;
  double weightRms = 0;    // root mean square of the weights after the step
  bool isFinite = true;    // false if a weight or an update is not finite; `ratio` is then absent
  bool hasGradient = true; // false if every gradient so far was zero
};

struct StepUpdates {
  int64_t step = 0;
  double lr = 0;
  std::vector<TensorUpdate> tensors; // in the plan's order
};

// Returns the line in updates.jsonl: {"step", "lr", "update_ratio": {TENSOR: RATIO}, "weight_rms":
// {TENSOR: RMS}}. An absent ratio is null.
std::string lineOf(const StepUpdates &updates);

} // namespace lmc
