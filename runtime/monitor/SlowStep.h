// Finds steps that took longer than usual, and says what took the time.
#pragma once

#include "runtime/monitor/MachineUse.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// Where the wall time of a step went, in seconds.
struct StepTimes {
  double seconds = 0; // of the step, with the three that follow
  double data = 0;    // that it waited for its batch
  double ranks = 0;   // that it waited for other ranks
  double logs = 0;    // writing to the console, to logs and to metrics
  // Of what was done beside the step or just before it.
  double save = 0, validation = 0;
};

// A part of the additional time of a step.
struct SlowStepCause {
  // "data", "ranks", "logs", "save", "validation", "other_processes", "hypervisor", "clock",
  // "page_faults", "swap", "stopped", "more_computation".
  std::string name;
  double seconds = 0; // of the additional time; 0: it is not known how many
  std::string text;   // "waiting for data took 3.1 s"
};

struct SlowStep {
  double seconds = 0, usual = 0;
  double predictedRatio = 0; // seconds / the time that the plan predicts; 0: it predicts none
  std::vector<SlowStepCause> causes; // the longest first; empty: nothing is known

  // Returns "took 4.2 s, 3.5 times the usual 1.2 s (1.3 times the predicted time): waiting ...".
  std::string text() const;
};

// Returns nullopt unless the step took 1.5 times the usual time and 0.1 s longer: what is less can
// be the noise of a machine. `usual` has the medians of steps before. `machine` is what the machine
// did in a time that ends with the step and is at least as long, and `usualMachine` what it usually
// does in as long a time. `predicted`: seconds that the plan predicts of a step, or 0.
std::optional<SlowStep> explainSlowStep(const StepTimes &step, const StepTimes &usual,
                                        const MachineUse &machine, const MachineUse &usualMachine,
                                        double predicted);

// Compares each step with the latest ones.
class SlowStepWatch {
public:
  static constexpr size_t kWindow = 50, kLeast = 10; // steps
  static constexpr double kWarnSeconds = 1, kPause = 60;

  struct Found {
    SlowStep step;
    // Whether to warn: at most once in kPause seconds, of a step that took kWarnSeconds longer.
    // What the user sees anyway (a console that takes no output, a save, a validation) is no
    // warning.
    bool warns = false;
  };

  explicit SlowStepWatch(double predicted) : predicted(predicted) {}

  // Is given each step, what the machine did since some time before it, and the time in seconds.
  // The first two steps are left out, because they also do what is done only once. Steps are judged
  // once kLeast are known.
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
