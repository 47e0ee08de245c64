// Reads the sums that a plan computes over its routers in each step (names::kRouterSums).
#pragma once

#include "ground/plan/PlanFile.h"
#include "runtime/monitor/Metrics.h"
#include "runtime/step/Scalars.h"

#include <vector>

namespace lmc {

class RouterSums {
public:
  // Finds the layers whose router sums `plan` keeps; there may be none.
  explicit RouterSums(const PlanFile &plan);

  // Sets the router records of a step. `values` are the vectors read after the step. `validTargets`
  // is the number of the step's targets with a loss, summed over all ranks.
  void read(const VectorValues &values, uint64_t validTargets, StepRecord &record) const;

private:
  std::vector<int64_t> layers;
  double tokens = 0, microBatches = 0; // numbers per step, summed over all ranks
};

} // namespace lmc
