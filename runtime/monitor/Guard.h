// Watches the loss and the gradient norm of a run. Warns of a spike, and decides when the run has
// diverged for good.
//
// A loss, or the logarithm of a gradient norm, is high if it is more than `spike` standard
// deviations above the running mean and its estimated probability is below 1e-5. A step is high if
// one of these two values is high. A spike is two high steps in a row, a step whose two values are
// both high, or a step with a value whose probability is below 1e-12. The estimate assumes an
// exponential tail beyond two deviations (peaks over a threshold; Siffer et al., KDD 2017). For a
// normal distribution, the estimate is 1e-5 at about 5 deviations and 1e-12 at about 11. Norms are
// judged after 2 x `window` steps, because norms change by large factors in a warm-up.
//
// The mean is exponential over `window` / 10 steps. The standard deviation is sqrt(mean(d^2) / 2)
// over `window` steps, where d is the difference of consecutive steps (mean square successive
// difference, von Neumann et al. 1941). So a steady fall of the loss does not increase the
// deviation. High values enter neither mean nor deviation, as in ZClip (arXiv 2504.02507). Steps
// are judged so after `window` / 2 steps. This number and `spike` = 6 are from OLMo-core's
// SkipStepOptimizer. In earlier steps, a spike is a loss of more than `rise` above L (see below).
//
// A level is the mean loss of `patience` / 4 steps. L is the lowest level so far; before the first
// level, L is the larger of ln(vocab_size) and the first loss. H is the highest of the latest four
// levels. A run has diverged for good if these four are all above L + `rise`, and the latest is
// above H - (H - L) / 16, so the loss does not fall back. MosaicML's KillLossSpike compares with
// the mean of a window instead, which rises with the loss. So KillLossSpike misses a slow rise.
//
// A run has also diverged if the loss or the gradient norm is not finite in ten steps in a row.
// Fewer such steps only cause warnings. Steps without a gradient are ignored.
#pragma once

#include "ground/config/Config.h"
#include "ground/support/Result.h"
#include "runtime/monitor/Metrics.h"
#include "runtime/monitor/Plateau.h"

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// The device does not apply a step whose loss or gradient norm exceeds these. The numbers
// are exact in f32, in which a device compares.
struct StepLimits {
  double loss = std::numeric_limits<double>::infinity(); // in nats
  double norm = std::numeric_limits<double>::infinity(); // L2 norm of the gradient before clipping
};

// The memory of a guard. A step number of 0 stands for "none".
struct GuardState {
  struct Running {
    int64_t count = 0; // number of steps in the mean
    double last = 0, mean = 0, variance = 0;
  };
  // Counts of the judged steps outside of spikes. All counts decay over kTailReach steps. The
  // initial values describe a tail slightly heavier than that of a normal distribution.
  struct Tail {
    double steps = 667, peaks = 20, excess = 10; // peaks: values > kPeak; excess: sum(value-kPeak)
  };
  bool started = false;
  Running loss, logNorm; // the loss in nats, and ln(gradient norm)
  Tail lossTail, normTail;
  int64_t highStep = 0; // the latest step, if it was high but no spike; else 0
  // Loss and norm of highStep, in deviations above the mean. Tails count them if no spike follows.
  double highLoss = 0, highNorm = 0;

  int64_t spikeStart = 0; // first step of a spike that is not over; 0: there is none
  double highestLoss = 0, highestNorm = 0; // during that spike
  bool spikeReported = false;              // true if there was a warning of this spike
  int64_t lastReport = 0;                  // step of the latest warning of a spike
  int64_t unreported = 0;                  // number of later spikes, which got no warning

  struct Limit {
    int64_t step = 0;
    double loss = 0, norm = 0; // as in StepLimits, but finite
  };
  std::vector<Limit> limits; // limits of the next two steps, if any

  double lowest = 0;         // lowest level of the loss
  int64_t settling = 0;      // number of next steps that cannot lower `lowest`
  double sum = 0;            // sum of the losses since the latest level
  int64_t summed = 0;        // steps in `sum`
  std::vector<double> above; // latest levels in a row above lowest + rise; at most 4
  int64_t riseStart = 0;     // first step of the rise: of its spike or, if none, its first level

  int64_t nonFinite = 0; // number of latest steps in a row without finite loss and norm

  // What the guard remembers of a validation set. `validations` is indexed by the name of the set.
  struct Validation {
    double lowest = 0;
    int64_t step = 0;        // the step of the lowest loss
    bool isReported = false; // true if a rise above `lowest` was reported
  };
  std::map<std::string, Validation> validations;

  double firstLoss = 0;
  // Number of steps at half the highest learning rate or more. If -1, the guard counts no steps.
  int64_t ratedSteps = -1;
  PlateauState plateau;
};

class Guard {
public:
  // `highestRate` is the highest learning rate of the schedule.
  Guard(const GuardConfig &settings, uint64_t vocabSize, double highestRate);

  struct Divergence {
    int64_t since;    // the first step of the divergence
    std::string text; // what happened, as a clause
    bool lasting = false; // true if the run must stop whatever guard.action is
  };
  // A spike that begins with this step or, if it consists of two high steps, the previous step.
  struct Spike {
    int64_t since = 0;           // the first step
    std::string text;            // what happened, as a clause
    double usualLoss, usualNorm; // running means before the spike
  };
  struct Verdict {
    std::vector<std::string> warnings; // one line each: "step N: ..."
    std::optional<Spike> spike;        // also set if the spike gives no warning
    std::optional<Divergence> divergence;
    std::optional<Plateau> plateau; // a plateau that has begun; also in `warnings`
  };

  // Tells the guard that the run starts from random initial weights. The guard then judges the
  // first loss, and whether the loss falls in the first steps at a high learning rate.
  void expectFreshWeights();

  // Tells the guard that the user has changed a setting. All statistics start anew. For `window`
  // steps, the lowest level L (see above) cannot fall.
  void expectChange();

  // Judges a step. After a divergence, L becomes the present level. With guard.action "off", only
  // looks for ten steps in a row that are not finite. Such a divergence is always `lasting`.
  Verdict observe(const StepRecord &record);

  // A validation loss that has risen.
  struct ValidationRise {
    double loss, lowest; // in nats
    int64_t step;        // the step of the lowest loss
    std::string text;    // a clause for the warning
  };
  // Returns a rise if the loss is more than guard.validation above the set's lowest loss. Returns
  // the next rise only after the loss was within guard.validation / 2 of the lowest loss.
  std::optional<ValidationRise> observeValidation(const std::string &set, int64_t step,
                                                  double loss);
  // Returns the step of the set's lowest loss; nullopt before its first validation.
  std::optional<int64_t> bestStep(const std::string &set) const;

  // Returns the limits of a step. All steps up to `step` - 2 must have been observed.
  StepLimits limitsOf(int64_t step) const;

  // Returns the first step of a spike or rise that is not over, else the latest step if it is high.
  std::optional<int64_t> suspectSince() const;

  // Save and restore all state that later verdicts need, as JSON.
  std::string state() const;
  Result<void> restore(const std::string &text);

private:
  void judgeNonFinite(const StepRecord &record, Verdict &verdict);
  void start(double loss, int64_t step, Verdict &verdict);
  void judge(const StepRecord &record, Verdict &verdict);
  void judgeSpike(const StepRecord &record, double loss, Verdict &verdict);
  void setLimits(int64_t step);
  void judgeLevel(double loss, int64_t step, Verdict &verdict);
  void judgeStart(const StepRecord &record, Verdict &verdict);
  void judgePlateau(const StepRecord &record, double loss, Verdict &verdict);
  void enter(GuardState::Running &running, double value) const;
  // Returns true once enough steps were observed to judge norms.
  bool judgesNorm() const;
  // Adds a step outside of spikes to the tails. The values are in deviations above the means.
  void enterTails(double ofLoss, double ofNorm);
  bool judges(const GuardState::Running &running) const;

  const GuardConfig settings;
  const double ignorance; // ln(vocab_size), in nats
  const double highestRate;
  GuardState memory;
};

} // namespace lmc
