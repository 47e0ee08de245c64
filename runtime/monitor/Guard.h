// Watches the loss and the gradient norm of a run: warns of a spike, and finds out when the run has
// diverged for good.
//
// A spike is a step whose loss, or the logarithm of whose gradient norm, is more than `spike`
// deviations above its running mean. The mean is an exponential one over a tenth of `window` steps,
// so that it follows the fall of the loss. The deviation comes from the differences d of
// consecutive steps, as sqrt(mean(d^2) / 2) over `window` steps: the mean square successive
// difference (von Neumann et al. 1941), which a falling loss does not widen. Norms are compared as
// logarithms because they scatter by factors. Steps of a spike enter neither mean nor deviation, so
// that a divergence does not become the norm; ZClip (arXiv 2504.02507) holds outliers off from its
// exponential means in the same way. Six deviations, and a judgement from half a window on, are
// those of OLMo-core's SkipStepOptimizer. In the first half window, a spike is a loss of more than
// `rise` above its lowest level.
//
// A run has diverged for good if its loss has stayed more than `rise` above its lowest level for
// `patience` steps and does not fall back. It is measured on means over a quarter of `patience`
// steps: four in a row are more than `rise` above the lowest one that there was, and the last of
// them is not lower than the highest by at least a sixteenth of its height above the lowest one.
// Thus a loss that falls back is not stopped as long as its height falls by a factor e within some
// ten times `patience` steps. Before the first such mean, the lowest level is ln(vocab_size), the
// loss of a model that knows nothing, or the first loss if it is higher. MosaicML's KillLossSpike
// also asks for a height and a patience, but compares with the mean of a window. A loss
// that rises slowly raises that mean too, and is never found.
//
// A run has also diverged if the loss or the gradient norm is not finite in ten steps in a row. Apart
// from that, such steps and steps without a gradient are ignored.
#pragma once

#include "runtime/monitor/Metrics.h"
#include "runtime/monitor/Plateau.h"
#include "runtime/support/Result.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// The keys of the TOML section [guard].
struct GuardSettings {
  std::string action = "stop"; // what follows a divergence: "stop" | "warn" | "off"
  std::string onSpike = "warn"; // what follows a spike: "warn" | "skip" | "rollback" | "stop"
  int64_t rollbacks = 3;        // so often a run goes back because of spikes
  int64_t window = 100;        // in steps: the running deviations average over so many
  double spike = 6;            // in deviations above the mean
  int64_t patience = 100;      // in steps: how long the loss must be high to have diverged
  double rise = 1;             // in nats above the lowest level: how high
  double plateau = 0;          // part of the loss: a smaller fall is a plateau (Plateau.h)
  int64_t compareWeights = 0;  // in steps; 0: never (runtime/train/CompareWeights.h)
  double updateRatio = 0.1;    // of a tensor (UpdateWatch.h); 0: none is judged
  int64_t deadExpert = 100;    // steps without a token (Routers.h); 0: none is looked for
};

// What a step must not exceed; the device leaves its update out otherwise. All numbers are values
// of f32, in which the device may compare.
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
  bool started = false;
  Running loss, logNorm; // the loss in nats, and ln(gradient norm)

  int64_t spikeStart = 0;                  // first step of a spike that is not over
  double highestLoss = 0, highestNorm = 0; // in that spike
  bool spikeReported = false;              // true if there was a warning of that spike
  int64_t lastReport = 0;                  // step of the latest warning of a spike
  int64_t unreported = 0;                  // spikes since then that there was no warning of

  struct Limit {
    int64_t step = 0;
    double loss = 0, norm = 0; // as in StepLimits, but finite
  };
  std::vector<Limit> limits; // of the next two steps, where they have any

  double lowest = 0;         // lowest level of the loss
  int64_t settling = 0;      // steps to come that do not lower `lowest`
  double sum = 0;            // of the losses of the quarter that is not complete
  int64_t summed = 0;        // steps in `sum`
  std::vector<double> above; // means of the latest quarters, at most four, that are all too high
  int64_t riseStart = 0;     // first step of the quarters in a row that are too high

  int64_t nonFinite = 0; // latest steps in a row whose loss or gradient norm is not finite

  double firstLoss = 0;
  int64_t ratedSteps = -1; // steps at half the highest rate or more; -1: no search for a loss that
                           // has not fallen since the start
  PlateauState plateau;
};

class Guard {
public:
  // `highestRate` is the highest learning rate of the schedule.
  Guard(const GuardSettings &settings, uint64_t vocabSize, double highestRate);

  struct Divergence {
    int64_t since;    // the first step that belongs to it
    std::string text; // what happened, as a clause
    bool lasting = false; // true if the run must stop under every action
  };
  // The first step of a spike.
  struct Spike {
    std::string text;            // what happened, as a clause
    double usualLoss, usualNorm; // running means before the spike
  };
  struct Verdict {
    std::vector<std::string> warnings; // a line each, beginning with "step N: "
    std::optional<Spike> spike;        // also if there is no warning of it
    std::optional<Divergence> divergence;
    std::optional<Plateau> plateau; // that has begun, also in the warnings
  };

  // Tells the guard that the weights are freshly drawn. The first loss is then compared with
  // ln(vocab_size), and one that has not fallen by a twentieth after the first steps at a high
  // learning rate is reported as a plateau.
  void expectFreshWeights();

  // Tells the guard that a setting of the run was changed on purpose. Means, deviations and lowest
  // level start anew, and for `window` steps the level is not taken, so that only a loss above that
  // of a model that knows nothing can then stop the run.
  void expectChange();

  // Judges a step. With the action "off", it only counts steps that are not finite; their divergence
  // is `lasting` under every action. After a divergence, the guard takes the present level as the lowest one, and
  // reports only a further rise.
  Verdict observe(const StepRecord &record);

  // Returns the limits of a step. All steps up to two before it must have been observed.
  StepLimits limitsOf(int64_t step) const;

  // Returns the first step of a spike or of a rise that is not over, if there is one. State from
  // before that step is worth keeping.
  std::optional<int64_t> suspectSince() const;

  // Save and restore everything that later verdicts depend on, as JSON; the numbers stay exact.
  // Error: `text` is not what state() returns.
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
  bool judges(const GuardState::Running &running) const;

  const GuardSettings settings;
  const double ignorance; // ln(vocab_size), in nats
  const double highestRate;
  GuardState memory;
};

} // namespace lmc
