// Watches the loss and the gradient norm of a run: warns of a spike, and finds out when the run has
// diverged for good.
//
// A step is high if its loss, or the logarithm of its gradient norm, is more than `spike`
// deviations above its running mean, and beyond what this run has shown: small batches have heavy
// tails. Two high steps in a row are a spike, because sound steps do not depend on each other, and
// so is one step whose loss and norm are both high, or that is far beyond. The tail of the steps so
// far exceeds a value that is "beyond" with a probability of 1e-5, and one that is "far beyond"
// with 1e-12. The tail is taken as exponential, by the mean excess over two deviations (peaks over
// a threshold, by which Siffer et al., KDD 2017, find outliers in streams). For normal values these
// are about 5 and 11 deviations. The norm is judged from two windows on, because it moves by
// factors in a warm-up.
//
// The mean is an exponential one over a tenth of `window` steps, so that it follows the fall of the
// loss. The deviation comes from the differences d of consecutive steps, as sqrt(mean(d^2) / 2)
// over `window` steps: the mean square successive difference (von Neumann et al. 1941), which a
// falling loss does not widen. Norms are compared as logarithms because they scatter by factors.
// Steps of a spike, and single high values, enter neither mean nor deviation, so that a divergence
// does not become the norm; ZClip (arXiv 2504.02507) holds outliers off from its exponential means
// in the same way. Six deviations, and a judgement from half a window on, are those of OLMo-core's
// SkipStepOptimizer. In the first half window, a spike is a loss of more than `rise` above its
// lowest level.
//
// A run has diverged for good if its loss has stayed more than `rise` above its lowest level for
// `patience` steps and does not fall back. It is measured on means over a quarter of `patience`
// steps: four in a row are more than `rise` above the lowest one that there was, and the last of
// them is not lower than the highest by at least a sixteenth of its height above the lowest one.
// Thus a loss that falls back is not stopped as long as its height falls by a factor e within some
// ten times `patience` steps. Before the first such mean, the lowest level is ln(vocab_size), the
// loss of a model that knows nothing, or the first loss if it is higher. MosaicML's KillLossSpike
// also has a height and a patience, but compares with the mean of a window, which a slowly rising
// loss raises, too, so that it is never found.
//
// A run has also diverged if the loss or the gradient norm is not finite in ten steps in a row.
// Apart from that, such steps and steps without a gradient are ignored.
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

// The limits of a step: the device does not apply a step whose loss or gradient norm exceeds them.
// The numbers are values of f32, in which the device may compare.
struct StepLimits {
  double loss = std::numeric_limits<double>::infinity(); // in nats
  double norm = std::numeric_limits<double>::infinity(); // of the gradient, before clipping
};

// The memory of a guard. A step number of 0 stands for "none".
struct GuardState {
  struct Running {
    int64_t count = 0; // steps that entered
    double last = 0, mean = 0, variance = 0;
  };
  // How far steps without a spike were above the mean, in deviations. The counts fade over
  // kTailReach steps, and start as those of a tail that is a little heavier than a normal one.
  struct Tail {
    double steps = 667, peaks = 20, excess = 10; // peaks: above kPeak; excess: their sum above it
  };
  bool started = false;
  Running loss, logNorm; // the loss in nats, and ln(gradient norm)
  Tail lossTail, normTail;
  int64_t highStep = 0; // the latest step if it was high and no spike; 0: it was not
  // Its loss and norm in deviations above the mean. They enter the tails if no spike follows.
  double highLoss = 0, highNorm = 0;

  int64_t spikeStart = 0; // first step of a spike that is not over; 0: there is none
  double highestLoss = 0, highestNorm = 0; // in that spike
  bool spikeReported = false;              // true if there was a warning of this spike
  int64_t lastReport = 0;                  // step of the latest warning of a spike
  int64_t unreported = 0;                  // spikes since then without a warning

  struct Limit {
    int64_t step = 0;
    double loss = 0, norm = 0; // as in StepLimits, but finite
  };
  std::vector<Limit> limits; // limits of the next two steps, if they have any

  double lowest = 0;         // lowest level of the loss
  int64_t settling = 0;      // number of steps to come that do not lower `lowest`
  double sum = 0;            // sum of the losses of the present quarter
  int64_t summed = 0;        // steps in `sum`
  std::vector<double> above; // means of the latest quarters, if too high; at most 4
  int64_t riseStart = 0;     // first step of these quarters

  int64_t nonFinite = 0; // latest steps in a row without a finite loss and gradient norm

  // The lowest loss of each set of validation data, by its name, and whether a rise above it was
  // reported.
  struct Validation {
    double lowest = 0;
    int64_t step = 0; // of the lowest
    bool isReported = false;
  };
  std::map<std::string, Validation> validations;

  double firstLoss = 0;
  int64_t ratedSteps = -1; // steps at half the highest rate or more; -1: a loss that has not fallen
                           // since the start is not searched
  PlateauState plateau;
};

class Guard {
public:
  // `highestRate` is the highest learning rate of the schedule.
  Guard(const GuardConfig &settings, uint64_t vocabSize, double highestRate);

  struct Divergence {
    int64_t since;    // the first step of the divergence
    std::string text; // what happened, as a clause
    bool lasting = false; // true if the run must stop under every action
  };
  // The first step of a spike, or the second of two high steps in a row that form a spike.
  struct Spike {
    int64_t since = 0;           // the first step
    std::string text;            // what happened, as a clause
    double usualLoss, usualNorm; // running means before the spike
  };
  struct Verdict {
    std::vector<std::string> warnings; // one line each, beginning with "step N: "
    std::optional<Spike> spike;        // set even if there is no warning
    std::optional<Divergence> divergence;
    std::optional<Plateau> plateau; // a plateau that has begun; `warnings` has it, too
  };

  // Tells the guard that the weights are freshly drawn. The first loss is then compared with
  // ln(vocab_size), and one that has not fallen by a twentieth after the first steps at a high
  // learning rate is reported as a plateau.
  void expectFreshWeights();

  // Tells the guard that a setting of the run was changed on purpose. Means, deviations and lowest
  // level restart. For `window` steps the level is not taken, so that only a loss above that of a
  // model that knows nothing can stop the run.
  void expectChange();

  // Judges a step. With the action "off", it only counts steps that are not finite; their divergence
  // is `lasting` under every action. After a divergence, the guard takes the present level as the lowest one, and
  // reports only a further rise.
  Verdict observe(const StepRecord &record);

  // A validation loss that has risen.
  struct ValidationRise {
    double loss, lowest; // in nats
    int64_t step;        // of the lowest
    std::string text;    // as a clause
  };
  // Judges the loss of a validation set ("" for data.validation) after a step. Returns a rise of
  // more than guard.validation above the lowest loss, once until the loss has fallen back by half.
  std::optional<ValidationRise> observeValidation(const std::string &set, int64_t step,
                                                  double loss);
  // Returns the step after which the set had its lowest loss; nullopt before its first validation.
  std::optional<int64_t> bestStep(const std::string &set) const;

  // Returns the limits of a step. All steps up to two before it must have been observed.
  StepLimits limitsOf(int64_t step) const;

  // Returns the first step of a spike or of a rise that is not over, if there is one. State from
  // before that step is worth keeping.
  std::optional<int64_t> suspectSince() const;

  // Save and restore, as JSON with exact numbers, everything on which later verdicts depend. Error:
  // `text` was not made by state().
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
  // Returns true once enough steps are known to judge a norm by them.
  bool judgesNorm() const;
  // Adds a step without a spike, `ofLoss` and `ofNorm` deviations above the means, to the tails.
  void enterTails(double ofLoss, double ofNorm);
  bool judges(const GuardState::Running &running) const;

  const GuardConfig settings;
  const double ignorance; // ln(vocab_size), in nats
  const double highestRate;
  GuardState memory;
};

} // namespace lmc
