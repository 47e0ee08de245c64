// The numbers that AdamW uses in one step; parameter groups may replace some of them.
#pragma once

#include "runtime/settings/Settings.h"

#include <cstdint>
#include <map>
#include <string>

namespace lmc {

struct AdamWStep {
  int64_t number = 0; // number of the step, from 1
  double lr = 0;
  double correction1 = 1, correction2 = 1; // bias corrections: 1 - beta^number
  double eps = 0;
  double weightDecay = 0;                            // for parameters with weight decay
  std::map<std::string, ParameterGroup> groups = {}; // groups by name

  // Returns the numbers of the step for the parameters of `group`; "": for parameters of no group.
  AdamWStep of(const std::string &group) const;
};

// Returns the numbers of the step `number` with the learning rate `lr`.
AdamWStep adamWStep(const TrainSettings &settings, int64_t number, double lr);

} // namespace lmc
