#include "runtime/settings/AdamWStep.h"

#include <cmath>

namespace lmc {

AdamWStep adamWStep(const TrainSettings &settings, int64_t number, double lr) {
  const auto steps = static_cast<double>(number);
  const OptimizerConfig &optimizer = settings.config.optimizer;
  return {.number = number,
          .lr = lr,
          .correction1 = 1.0 - std::pow(optimizer.beta1, steps),
          .correction2 = 1.0 - std::pow(optimizer.beta2, steps),
          .eps = optimizer.eps,
          .weightDecay = optimizer.weightDecay,
          .groups = optimizer.groups};
}

AdamWStep AdamWStep::of(const std::string &group) const {
  AdamWStep step = *this;
  if (const auto found = groups.find(group); found != groups.end()) {
    step.lr *= found->second.lrMult;
    step.weightDecay = found->second.weightDecay;
  }
  return step;
}

} // namespace lmc
