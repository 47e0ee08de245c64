// Decides which sizes of the model are padded in the plan, and states the gain.
#pragma once

#include "compiler/cost/CostModel.h"
#include "ground/config/Config.h"

#include <nlohmann/json_fwd.hpp>

#include <optional>

namespace lmc {

// A size of the model, and the padded size that weights have in the plan.
struct PaddedSize {
  int64_t size = 0, multiple = 1;
  int64_t padded = 0; // the next multiple of `multiple`; `size` if nothing is padded
  // The predicted seconds per optimizer step and rank of the matrix products that have this size;
  // absent without a device spec.
  std::optional<double> seconds, unpaddedSeconds;
  // Bytes of padding in all parameters and their state, before ranks divide the state.
  double addedBytes = 0;

  bool isPadded() const { return padded != size; }
  nlohmann::json toJson() const; // the fields above
};

struct Padding {
  PaddedSize vocabulary;   // rows of the head's weights (lm-pad-vocabulary)
  PaddedSize intermediate; // columns of the MLPs (lm-pad-intermediate)
};

// Returns the padding of a job. A key may force a multiple. "auto" pads to the multiple that the
// device's target names, unless `model` predicts that this saves no time in the matrix products.
// With adamw8bit, "auto" does not pad the MLPs, because its checkpoints would change.
Padding paddingOf(const Config &config, const cost::CostModel *model);

} // namespace lmc
