// Watches for tensors whose updates are out of range.
//
// A tensor is out of range if one of its weights or updates is not finite. From the first judged
// step on, it is also out of range if all its gradients were zero. A matrix is then also out of
// range if its update ratio (Metrics.h) is above a limit L (guard.update_ratio). L is not for
// biases: a bias whose best value is zero has a large ratio in every step.
//
// The first judged step is after the warm-up, and its number is at least 5 / L. Before it, the
// limit of a matrix is 10: above 10, its initial weights are far too small. In the first steps,
// Adam changes a weight by up to the learning rate, whatever the gradient. So a matrix that starts
// at zero has a ratio of up to 2 / n after n steps of a linear warm-up.
#pragma once

#include "runtime/watch/Watch.h"

#include <cstdint>
#include <set>
#include <string>

namespace lmc {

class UpdateWatch final : public Watch {
public:
  // `limit` is L; 0: nothing is judged. `warmupEnd` is the last step of the warm-up.
  UpdateWatch(double limit, int64_t warmupEnd) : limit(limit), warmupEnd(warmupEnd) {}

  const char *stateKey() const override { return "updates"; }
  std::string state() const override;
  Result<void> restore(const std::string &text) override;

  // Returns a finding if tensors are out of range now that were in range at the previous step.
  WatchFindings updated(const StepUpdates &updates) override;

private:
  const double limit;
  const int64_t warmupEnd;
  std::set<std::string> known; // the tensors that were out of range at the latest step
};

} // namespace lmc
