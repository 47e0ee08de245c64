// Finds steps that took longer than usual, and the causes.
#pragma once

#include "runtime/monitor/MachineUse.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// The wall time of a step and its parts, in seconds.
struct StepTimes {
  double seconds = 0; // the whole step, including the three times below
  double data = 0;    // waiting for its batch
  double ranks = 0;   // waiting for other ranks
  double logs = 0;    // writing to the console, to logs and to metrics
  // Seconds of a save and of a validation that ran during the step or just before it.
  double save = 0, validation = 0;
};

// A cause of a part of the additional time of a step.
struct SlowStepCause {
  // One of "data", "ranks", "logs", "save", "validation", "other_processes", "hypervisor", "clock",
  // "page_faults", "swap", "stopped", "more_computation".
  std::string name;
  double seconds = 0; // part of the additional time; 0: unknown
  std::string text;   // "waiting for data took 3.1 s"
};

struct SlowStep {
  double seconds = 0, usual = 0;
  double predictedRatio = 0;         // seconds / predicted seconds; 0: the plan predicts none
  std::vector<SlowStepCause> causes; // the most seconds first; empty: no cause is known

  // Returns "took 4.2 s, 3.5 times the usual 1.2 s (1.3 times the predicted time): waiting ...".
  std::string text() const;
};

// Explains a slow step. Returns nullopt unless the step took at least 1.5 times the usual time and
// 0.1 s more: smaller differences can be noise. `usual` has the medians of earlier steps. `machine`
// is the machine's use in a period that ends with the step and includes it. `usualMachine` is the
// usual use in a period of that length. `predicted` is the plan's estimate in seconds; 0: none.
std::optional<SlowStep> explainSlowStep(const StepTimes &step, const StepTimes &usual,
                                        const MachineUse &machine, const MachineUse &usualMachine,
                                        double predicted);

// Compares each step with the latest steps.
class SlowStepWatch {
public:
  static constexpr size_t kWindow = 50, kLeast = 10; // steps
  static constexpr double kWarnSeconds = 1, kPause = 60;

  struct Found {
    SlowStep step;
    // True if the step took kWarnSeconds longer than usual, kPause seconds have passed since the
    // last warning, and the user does not see the cause anyway (for example a save).
    bool warns = false;
  };

  explicit SlowStepWatch(double predicted) : predicted(predicted) {}

  // Must be called with each step. `machine` is the machine's use in a period that ends with the
  // step; `now` is in seconds. The first two steps are ignored as warm-up. The next kLeast steps
  // are not judged.
  std::optional<Found> observe(const StepTimes &step, const MachineUse &machine, double now);

private:
  StepTimes usualTimes() const;
  MachineUse usualMachine(double seconds) const;

  const double predicted;
  uint64_t seen = 0;
  std::deque<StepTimes> steps;
  std::deque<MachineUse> uses;
  std::optional<double> warned; // the time of the latest warning
};

} // namespace lmc
