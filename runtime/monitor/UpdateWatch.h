// Warns of tensors whose updates are out of range.
//
// A tensor is out of range if one of its weights or updates is not finite. From the first judged
// step on, it is also out of range if it never had a gradient or, for a matrix, if its update ratio
// (Updates.h) is above a limit L (guard.update_ratio). L does not apply to norms and biases: a bias
// whose best value is zero has a large ratio in every step.
//
// The first judged step comes after the warm-up, and not before step 5 / L. Adam changes a weight
// by up to the learning rate in each of the first steps, whatever the gradient. So a matrix that
// starts at zero has a ratio of up to 1 / n after n steps at a constant rate, and of 2 / n in a
// linear warm-up. A matrix that starts with a deviation of 0.0025 (0.02 / sqrt(2 layers), for 32
// layers) has a ratio of 4 in step 1 at a rate of 0.01. Before the first judged step, a matrix is
// out of range only if its ratio is above 10: its initial weights are then far too small.
#pragma once

#include "ground/support/Result.h"
#include "runtime/monitor/Updates.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lmc {

class UpdateWatch {
public:
  // `limit` is L; 0: nothing is judged. `warmupEnd` is the last step of the warm-up.
  UpdateWatch(double limit, int64_t warmupEnd) : limit(limit), warmupEnd(warmupEnd) {}

  enum class Fault { NotFinite, Ratio, NoGradient };
  struct OutOfRange {
    std::string name;
    Fault fault = Fault::Ratio;
    std::optional<double> ratio; // as in TensorUpdate
  };
  struct Verdict {
    std::string warning;             // one line, beginning with "step N: "
    std::vector<OutOfRange> tensors; // the worst first
  };

  // Judges a step. Returns the tensors that are out of range now and were not at the previous step;
  // nullopt if there are none.
  std::optional<Verdict> observe(const StepUpdates &updates);

  // Save and restore, as JSON, everything on which later verdicts depend. Error: `text` was not
  // made by state().
  std::string state() const;
  Result<void> restore(const std::string &text);

private:
  const double limit;
  const int64_t warmupEnd;
  std::set<std::string> known; // the tensors that were out of range at the latest step
};

// Returns "not_finite", "ratio" or "no_gradient".
const char *nameOf(UpdateWatch::Fault fault);

} // namespace lmc
