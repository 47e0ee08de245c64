#include "runtime/monitor/Guard.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace lmc {

// The minimum standard deviations. At 6 deviations, a spike is at least a rise of the loss by 6 x
// 0.01 = 0.06 nats, or of the gradient norm by a factor of exp(6 x 0.1) = 1.8.
static constexpr double kLeastLossDeviation = 0.01; // in nats
static constexpr double kLeastNormDeviation = 0.1;  // of ln(norm)
static constexpr double kHighestLoss = 1e100;       // replaces larger losses, so squares are finite
static constexpr int64_t kMaxNonFiniteSteps = 10;   // the run ends at this number in a row
static constexpr size_t kQuarters = 4;
// If the latest level is at least this part of H - L below H (Guard.h), the run has not diverged.
static constexpr double kFallingBack = 1.0 / 16;
static constexpr double kVisibleFall = 1.0 / 20; // minimum fall of a new model's loss / first loss
static constexpr double kSmallRate = 1.0 / 10;   // a plateau is sought if lr / highest lr >= this
// Usual initial weights give logits with a standard deviation of 0.02 * sqrt(hidden size). The
// first loss exceeds ln(vocab_size) by half the variance of the logits: 0.4 nats for a hidden size
// of 2048, 1.6 nats for 8192. The limit is higher than these: ln(32000) / 5 is 2.1 nats.
static constexpr double kFarFromIgnorance = 1.0 / 5;
static constexpr double kPeak = 2;          // deviations at which the tail begins
static constexpr double kMostExcess = 30;   // maximum height of a peak above kPeak, in deviations
static constexpr double kTailReach = 20000; // steps over which the counts of a tail decay
// A step is high if its probability, by the tail, is below kHigh. Two high steps in a row have a
// probability of 1e-10. A step is a spike by itself if its probability is below kFar.
static constexpr double kHigh = 1e-5, kFar = 1e-12;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GuardState::Running, count, last, mean, variance)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GuardState::Tail, steps, peaks, excess)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GuardState::Limit, step, loss, norm)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GuardState::Validation, lowest, step, isReported)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PlateauState::Block, count, mean, squares)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PlateauState, blocks, length, reported)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GuardState, started, loss, logNorm, lossTail, normTail, highStep,
                                   highLoss, highNorm, spikeStart, highestLoss, highestNorm,
                                   spikeReported, lastReport, unreported, limits, lowest, settling,
                                   sum, summed, above, riseStart, nonFinite, firstLoss, ratedSteps,
                                   plateau, validations)

Guard::Guard(const GuardConfig &settings, uint64_t vocabSize, double highestRate)
    : settings(settings), ignorance(std::log(static_cast<double>(vocabSize))),
      highestRate(highestRate) {}

void Guard::expectFreshWeights() { memory.ratedSteps = 0; }

void Guard::expectChange() {
  GuardState anew;
  anew.settling = settings.window;
  anew.validations = memory.validations; // kept: the validation data is the same as before
  memory = anew;
}

std::optional<int64_t> Guard::suspectSince() const {
  std::optional<int64_t> first;
  for (const int64_t start : {memory.spikeStart, memory.riseStart})
    if (start != 0)
      first = std::min(start, first.value_or(start));
  return first || memory.highStep == 0 ? first : memory.highStep;
}

std::string Guard::state() const { return nlohmann::json(memory).dump(); }

Result<void> Guard::restore(const std::string &text) {
  try {
    nlohmann::json json = nlohmann::json::parse(text);
    // The state of an earlier release lacks these members.
    const nlohmann::json initial = GuardState();
    for (const char *name : {"nonFinite", "limits", "plateau", "lossTail", "normTail", "highStep",
                             "highLoss", "highNorm", "validations"})
      json.emplace(name, initial.at(name));
    memory = json.get<GuardState>();
    if (settings.onSpike != "skip") // only guard.on_spike = "skip" uses limits
      memory.limits.clear();
    if (settings.action == "off") {
      GuardState counts;
      counts.nonFinite = memory.nonFinite;
      counts.validations = memory.validations;
      memory = counts;
    }
  } catch (const nlohmann::json::exception &) {
    return Error{"the guard's state is not of this version of lmc-run"};
  }
  return {};
}

// Returns the weight of the newest value in an exponential mean over `reach` values. `count` is the
// number of values so far. The first `reach` values have equal weights, so none dominates.
static double newestWeight(int64_t count, int64_t reach) {
  return 1.0 / static_cast<double>(std::clamp<int64_t>(count, 1, std::max<int64_t>(reach, 1)));
}

void Guard::enter(GuardState::Running &running, double value) const {
  if (running.count > 0) {
    const double difference = value - running.last;
    running.variance += newestWeight(running.count, settings.window) *
                        (difference * difference / 2 - running.variance);
  }
  ++running.count;
  running.mean += newestWeight(running.count, settings.window / 10) * (value - running.mean);
  running.last = value;
}

bool Guard::judges(const GuardState::Running &running) const {
  return running.count >= std::max<int64_t>(2, settings.window / 2);
}

bool Guard::judgesNorm() const { return memory.logNorm.count >= 2 * settings.window; }

static double deviationOf(const GuardState::Running &running, double leastDeviation) {
  return std::max(std::sqrt(running.variance), leastDeviation);
}

static double deviationsAbove(const GuardState::Running &running, double value,
                              double leastDeviation) {
  return (value - running.mean) / deviationOf(running, leastDeviation);
}

static void enterTail(GuardState::Tail &tail, double deviations) {
  for (double *count : {&tail.steps, &tail.peaks, &tail.excess})
    *count *= 1 - 1 / kTailReach;
  tail.steps += 1;
  if (deviations > kPeak) {
    tail.peaks += 1;
    tail.excess += std::min(deviations - kPeak, kMostExcess);
  }
}

void Guard::enterTails(double ofLoss, double ofNorm) {
  enterTail(memory.lossTail, ofLoss);
  if (judgesNorm())
    enterTail(memory.normTail, ofNorm);
}

// Returns a limit in deviations above the mean, at least `spike`. As estimated from `tail`, a step
// exceeds the limit with at most the probability `probability`.
static double beyond(const GuardState::Tail &tail, double probability, double spike) {
  const double meanExcess = tail.excess / tail.peaks;
  return std::max(spike, kPeak + meanExcess * std::log(tail.peaks / tail.steps / probability));
}

// Returns the finite f32 value that is nearest to `value`.
static double nearestFloat(double value) {
  return static_cast<float>(std::min<double>(value, std::numeric_limits<float>::max()));
}

void Guard::setLimits(int64_t step) {
  std::erase_if(memory.limits, [&](const GuardState::Limit &limit) { return limit.step <= step; });
  if (settings.onSpike != "skip" || settings.action == "off" || !judges(memory.loss))
    return;
  // After a high step or in a spike, one more high step is a spike. So the limit is lower.
  const bool isSuspect = memory.spikeStart != 0 || memory.highStep != 0;
  auto limit = [&](const GuardState::Running &running, const GuardState::Tail &tail,
                   double leastDeviation) {
    const double most = beyond(tail, isSuspect ? kHigh : kFar, settings.spike);
    return running.mean + most * deviationOf(running, leastDeviation);
  };
  const double norm = limit(memory.logNorm, memory.normTail, kLeastNormDeviation);
  memory.limits.push_back(
      {step + 2, nearestFloat(limit(memory.loss, memory.lossTail, kLeastLossDeviation)),
       nearestFloat(judgesNorm() ? std::exp(norm) : std::numeric_limits<double>::max())});
}

StepLimits Guard::limitsOf(int64_t step) const {
  for (const GuardState::Limit &limit : memory.limits)
    if (limit.step == step)
      return {limit.loss, limit.norm};
  return {};
}

void Guard::start(double loss, int64_t step, Verdict &verdict) {
  memory.started = true;
  memory.firstLoss = loss;
  memory.lowest = std::max(ignorance, loss);
  if (memory.ratedSteps >= 0 && std::abs(loss - ignorance) > kFarFromIgnorance * ignorance)
    verdict.warnings.push_back(
        fmt::format("step {}: the first loss is {:.3f}, far from ln(vocab_size) = {:.3f}, which "
                    "fresh weights give; check the initial weights, the data and model.vocab_size",
                    step, loss, ignorance));
}

void Guard::judgeSpike(const StepRecord &record, double loss, Verdict &verdict) {
  // If guard.skip_steps names a step, its batch may be unusual, so it is not judged.
  if (record.skipped == SkipReason::Named)
    return;
  const int64_t step = record.step;
  const double norm = record.gradNorm;
  const bool inSpike = memory.spikeStart != 0;
  // A spike is over once loss and norm are both below half the threshold. So values that vary
  // around the threshold do not end it.
  const double part = inSpike ? 0.5 : 1;
  const double ofLoss = deviationsAbove(memory.loss, loss, kLeastLossDeviation);
  const double ofNorm = deviationsAbove(memory.logNorm, std::log(norm), kLeastNormDeviation);
  const auto isAbove = [&](double mostOfLoss, double mostOfNorm) {
    return ofLoss > mostOfLoss || (judgesNorm() && ofNorm > mostOfNorm);
  };
  const bool judged = judges(memory.loss), afterHigh = memory.highStep != 0;
  const double highLoss = beyond(memory.lossTail, kHigh, settings.spike),
               highNorm = beyond(memory.normTail, kHigh, settings.spike);
  const bool high = judged ? isAbove(part * highLoss, part * highNorm)
                           : loss > memory.lowest + part * settings.rise;
  // An odd but harmless batch may raise the loss or the norm, but seldom raises both.
  const bool both = judged && judgesNorm() && ofLoss > highLoss && ofNorm > highNorm;
  const bool far = judged && isAbove(beyond(memory.lossTail, kFar, settings.spike),
                                     beyond(memory.normTail, kFar, settings.spike));
  const bool isSpike = high && (inSpike || !judged || afterHigh || both || far);
  // A step that the device skipped is a spike too: its limits are from the means two steps earlier.
  if (!isSpike && record.skipped == SkipReason::None) {
    if (inSpike && memory.spikeReported)
      verdict.warnings.push_back(
          fmt::format("step {}: the spike since step {} is over: loss {:.3f} after at most {:.3f}, "
                      "gradient norm {:.3f} after at most {:.3f}",
                      step, memory.spikeStart, loss, memory.highestLoss, norm, memory.highestNorm));
    memory.spikeStart = 0;
    if (afterHigh)
      enterTails(memory.highLoss, memory.highNorm);
    memory.highStep = high ? step : 0;
    memory.highLoss = ofLoss;
    memory.highNorm = ofNorm;
    memory.highestLoss = loss;
    memory.highestNorm = norm;
    if (judged && !high)
      enterTails(ofLoss, ofNorm);
    if (!high || ofLoss <= highLoss)
      enter(memory.loss, loss);
    if (!high || ofNorm <= highNorm)
      enter(memory.logNorm, std::log(norm));
    return;
  }

  if (!inSpike) {
    memory.spikeStart = afterHigh ? memory.highStep : step;
    if (!afterHigh)
      memory.highestLoss = memory.highestNorm = 0;
    memory.highStep = 0;
    verdict.spike = {
        memory.spikeStart,
        fmt::format(
            "spike: loss {:.3f} where {:.3f} +- {:.3f} is usual, gradient norm {:.3f} where "
            "{:.3f} is usual",
            loss, memory.loss.mean, std::sqrt(memory.loss.variance), norm,
            std::exp(memory.logNorm.mean)),
        memory.loss.mean, std::exp(memory.logNorm.mean)};
    // At most one spike is reported in `window` steps.
    memory.spikeReported = memory.lastReport == 0 || step - memory.lastReport >= settings.window;
    if (memory.spikeReported) {
      std::string others =
          memory.unreported == 0
              ? ""
              : fmt::format("; {} more since step {}", memory.unreported, memory.lastReport);
      verdict.warnings.push_back(
          fmt::format("step {}: {}{}{}", step, verdict.spike->text,
                      record.skipped == SkipReason::Spike ? "; the step is skipped" : "", others));
      memory.lastReport = step;
      memory.unreported = 0;
    } else {
      ++memory.unreported;
    }
  }
  memory.highestLoss = std::max(memory.highestLoss, loss);
  memory.highestNorm = std::max(memory.highestNorm, norm);
  // If levels have not risen, a spike ends after `patience` steps: loss and norm become the means.
  if (step - memory.spikeStart >= settings.patience && memory.riseStart == 0) {
    if (memory.spikeReported)
      verdict.warnings.push_back(
          fmt::format("step {}: the spike since step {} is not over; from here on, loss {:.3f} and "
                      "gradient norm {:.3f} count as usual",
                      step, memory.spikeStart, loss, norm));
    memory.spikeStart = 0;
    memory.loss.mean = memory.loss.last = loss;
    memory.logNorm.mean = memory.logNorm.last = std::log(norm);
  }
}

void Guard::judgeLevel(double loss, int64_t step, Verdict &verdict) {
  const auto quarters = static_cast<int64_t>(kQuarters);
  const int64_t length = (settings.patience + quarters - 1) / quarters;
  memory.settling = std::max<int64_t>(memory.settling - 1, 0);
  memory.sum += loss;
  if (++memory.summed < length)
    return;
  const double mean = memory.sum / static_cast<double>(memory.summed);
  const int64_t first = step - memory.summed + 1;
  memory.sum = 0;
  memory.summed = 0;
  std::vector<double> &above = memory.above;
  if (mean <= memory.lowest + settings.rise) {
    above.clear();
    memory.riseStart = 0;
    if (memory.settling == 0)
      memory.lowest = std::min(memory.lowest, mean);
    return;
  }
  if (above.empty())
    memory.riseStart = memory.spikeStart == 0 ? first : memory.spikeStart;
  else if (above.size() == kQuarters)
    above.erase(above.begin());
  above.push_back(mean);
  if (above.size() < kQuarters)
    return;
  const double highest = *std::max_element(above.begin(), above.end() - 1);
  if (mean <= highest - kFallingBack * (highest - memory.lowest))
    return;
  verdict.divergence = {
      memory.riseStart,
      fmt::format("diverged: since step {}, the loss is more than {} above its lowest level of "
                  "{:.3f} and does not fall back (mean of the last {} step(s): {:.3f})",
                  memory.riseStart, settings.rise, memory.lowest, step - first + 1, mean)};
  memory.lowest = mean;
  above.clear();
  memory.riseStart = memory.spikeStart = 0;
  memory.loss = memory.logNorm = {};
  memory.ratedSteps = -1;
}

void Guard::judgePlateau(const StepRecord &record, double loss, Verdict &verdict) {
  if (settings.plateau <= 0 || record.lr < kSmallRate * highestRate)
    return;
  verdict.plateau = observePlateau(memory.plateau, loss, settings.plateau);
  if (verdict.plateau)
    verdict.warnings.push_back(fmt::format(
        "step {}: the loss does not fall any more: {:.4f} is the mean of the last {} steps, and "
        "{:.4f} that of as many before; check the data and lr_schedule.lr",
        record.step, verdict.plateau->latest, verdict.plateau->steps, verdict.plateau->before));
}

void Guard::judgeStart(const StepRecord &record, Verdict &verdict) {
  if (memory.ratedSteps < 0 || record.lr <= 0 || record.lr < highestRate / 2)
    return;
  if (++memory.ratedSteps < std::max(settings.window, settings.patience))
    return;
  memory.ratedSteps = -1;
  if (memory.lowest > (1 - kVisibleFall) * memory.firstLoss)
    verdict.warnings.push_back(
        fmt::format("step {}: the loss has hardly fallen since the start: {:.3f} at first, {:.3f} "
                    "as its lowest level; check lr_schedule.lr, the data and its tokenizer",
                    record.step, memory.firstLoss, memory.lowest));
}

// Formats a value, without the meaningless sign of a NaN.
static std::string valueText(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{}", value);
}

void Guard::judgeNonFinite(const StepRecord &record, Verdict &verdict) {
  ++memory.nonFinite;
  verdict.warnings.push_back(fmt::format(
      "step {}: loss {}, gradient norm {}: {} ({} such step(s) in a row)", record.step,
      valueText(record.loss), valueText(record.gradNorm),
      record.skipped != SkipReason::None ? "the step is skipped, all weights stay as they were"
                                         : "the loss is not finite, though the gradient is",
      memory.nonFinite));
  if (memory.nonFinite < kMaxNonFiniteSteps)
    return;
  const int64_t since = record.step - memory.nonFinite + 1;
  verdict.divergence = {
      since,
      fmt::format("loss or gradient norm not finite in {} steps in a row, from step {} on",
                  memory.nonFinite, since),
      /*lasting=*/true};
}

std::optional<Guard::ValidationRise> Guard::observeValidation(const std::string &set, int64_t step,
                                                              double loss) {
  if (!std::isfinite(loss))
    return std::nullopt;
  const auto [found, isNew] =
      memory.validations.emplace(set, GuardState::Validation{.lowest = loss, .step = step});
  GuardState::Validation &known = found->second;
  if (isNew || loss < known.lowest) {
    known = {.lowest = loss, .step = step};
    return std::nullopt;
  }
  const double rise = loss - known.lowest;
  if (rise < settings.validation / 2)
    known.isReported = false;
  if (settings.validation <= 0 || rise <= settings.validation || known.isReported)
    return std::nullopt;
  known.isReported = true;
  return ValidationRise{
      loss, known.lowest, known.step,
      fmt::format("the validation loss{} has risen to {:.3f}, and its lowest was {:.3f} after step "
                  "{}: the model gets worse at text that it is not trained on",
                  set.empty() ? "" : fmt::format(" of {}", set), loss, known.lowest, known.step)};
}

std::optional<int64_t> Guard::bestStep(const std::string &set) const {
  const auto found = memory.validations.find(set);
  return found == memory.validations.end() ? std::nullopt : std::optional(found->second.step);
}

Guard::Verdict Guard::observe(const StepRecord &record) {
  Verdict verdict;
  judge(record, verdict);
  setLimits(record.step);
  return verdict;
}

void Guard::judge(const StepRecord &record, Verdict &verdict) {
  if (!std::isfinite(record.loss) || !std::isfinite(record.gradNorm))
    return judgeNonFinite(record, verdict);
  memory.nonFinite = 0;
  if (settings.action == "off" || record.gradNorm <= 0)
    return;
  const double loss = std::min(record.loss, kHighestLoss);
  if (!memory.started)
    start(loss, record.step, verdict);
  judgeSpike(record, loss, verdict);
  judgeLevel(loss, record.step, verdict);
  judgeStart(record, verdict);
  judgePlateau(record, loss, verdict);
  if (verdict.spike && settings.onSpike == "stop" && !verdict.divergence)
    verdict.divergence = {record.step, verdict.spike->text + " (guard.on_spike is \"stop\")",
                          /*lasting=*/true};
}

} // namespace lmc
