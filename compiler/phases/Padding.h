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
  // Predicted seconds that a rank spends per optimizer step in the matrix products with this size:
  // padded and unpadded. Absent without a device spec.
  std::optional<double> seconds, unpaddedSeconds;
  // Bytes that padding adds to the parameters, gradients and moments of the whole model.
  double addedBytes = 0;

  bool isPadded() const { return padded != size; }
  nlohmann::json toJson() const; // the fields above
};

struct Padding {
  PaddedSize vocabulary;   // rows of the head's weights (lm-pad-vocabulary)
  PaddedSize intermediate; // columns of the MLPs (lm-pad-intermediate)
};

// Returns the padding of a job. A configuration key may set the multiple. "auto" takes the target's
// multiple, unless `model` predicts that padding does not make the matrix products faster. With
// adamw8bit, "auto" does not pad the MLPs, because that would change the checkpoints.
Padding paddingOf(const Config &config, const cost::CostModel *model);

} // namespace lmc
