#include "ground/settings/LrSettings.h"

#include "ground/support/Number.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>

namespace lmc {
namespace {

// Returns the enumerator with the name `name`, or the first enumerator if none has this name.
template <typename E> E named(std::span<const char *const> names, const std::string &name) {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? E() : static_cast<E>(found - names.begin());
}

LrStyle styleOf(const LrKeys &keys) { return named<LrStyle>(kLrStyles, keys.style); }

int whereGiven(const LrKeys &keys, const char *key) {
  return keys.given.contains(key) ? keys.given.at(key) : 0;
}

// Returns true if the key `ratio` was given later than `plain`, another key for the same value.
bool usesRatio(const LrKeys &keys, const char *plain, const char *ratio) {
  return whereGiven(keys, ratio) > whereGiven(keys, plain);
}

bool hasMinLrRatio(const LrKeys &keys) { return usesRatio(keys, "min_lr", "min_lr_ratio"); }
bool hasWarmupRatio(const LrKeys &keys) { return usesRatio(keys, "warmup_iters", "warmup_ratio"); }

int64_t decayIters(const LrKeys &keys, int64_t lastStep) {
  return whereGiven(keys, "decay_iters") ? keys.decayIters : lastStep - keys.restartStep;
}

int64_t warmupIters(const LrKeys &keys, int64_t lastStep) {
  if (!hasWarmupRatio(keys))
    return keys.warmupIters;
  return std::llround(keys.warmupRatio * static_cast<double>(decayIters(keys, lastStep)));
}

// Reads "STEP:RATE".
std::optional<RatePoint> parsePoint(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos)
    return std::nullopt;
  const auto step = parseWhole<int64_t>(text.substr(0, colon));
  const auto rate = parseWhole<double>(text.substr(colon + 1));
  return step && rate && *step >= 0 ? std::optional(RatePoint{*step, *rate}) : std::nullopt;
}

// Adds the mistakes in the key `points`.
void checkPoints(const LrKeys &keys, std::vector<SettingFault> &faults) {
  const bool isPiecewise = styleOf(keys) == LrStyle::Piecewise;
  if (isPiecewise && keys.points.empty())
    faults.push_back({"style",
                      {"points"},
                      "style = \"piecewise\" needs points, such as points = [\"0:0\", "
                      "\"100:3e-4\", \"5000:3e-5\"]"});
  if (!isPiecewise && !keys.points.empty() &&
      whereGiven(keys, "points") >= whereGiven(keys, "style"))
    faults.push_back({"points",
                      {"style"},
                      fmt::format("points do nothing with style = \"{}\"; give style = "
                                  "\"piecewise\", or leave them out",
                                  keys.style)});
  std::optional<RatePoint> before;
  for (const std::string &text : keys.points) {
    const auto point = parsePoint(text);
    std::string problem;
    if (!point)
      problem = "; a point is \"STEP:RATE\", such as \"1000:3e-4\"";
    else if (!(point->rate >= 0 && point->rate <= kMaxRate))
      problem = fmt::format("; a rate must be from 0 to {}", kMaxRate);
    else if (before && point->step <= before->step)
      problem = fmt::format(" behind step {}; the steps must rise", before->step);
    if (!problem.empty())
      faults.push_back({"points", {}, fmt::format("points has \"{}\"{}", text, problem)});
    if (point)
      before = point;
  }
}

// Adds a mistake if the keys `plain` and `ratio`, two forms of a value, have the same origin.
void checkForms(const LrKeys &keys, const char *plain, const char *ratio,
                std::vector<SettingFault> &faults) {
  if (whereGiven(keys, ratio) && whereGiven(keys, ratio) == whereGiven(keys, plain))
    faults.push_back(
        {ratio, {plain}, fmt::format("{0} and {1} say the same; give one of them", plain, ratio)});
}

} // namespace

std::vector<SettingFault> lrFaults(const LrKeys &keys, int64_t lastStep) {
  std::vector<SettingFault> faults;
  if (keys.restartStep >= lastStep)
    return {{"restart_step",
             {},
             fmt::format("restart_step = {} is not below train_iters = {}, so that no step is left",
                         keys.restartStep, lastStep)}};
  checkPoints(keys, faults);
  checkForms(keys, "min_lr", "min_lr_ratio", faults);
  checkForms(keys, "warmup_iters", "warmup_ratio", faults);
  const int64_t warmup = warmupIters(keys, lastStep), decay = decayIters(keys, lastStep);
  if (decay > lastStep - keys.restartStep)
    faults.push_back(
        {"decay_iters",
         {"restart_step"},
         fmt::format(
             "decay_iters = {} is more than train_iters = {}{}", decay, lastStep,
             keys.restartStep == 0 ? "" : fmt::format(" - restart_step = {}", keys.restartStep))});
  const LrStyle style = styleOf(keys);
  const bool decays = style == LrStyle::Linear || style == LrStyle::Cosine || style == LrStyle::Wsd;
  if (const int64_t left = lastStep - keys.restartStep - decay;
      decays && left > 0 && whereGiven(keys, "decay_iters"))
    faults.push_back(
        {"decay_iters",
         {"style", "restart_step"},
         fmt::format("decay_iters = {} ends the decay before the run: the last {} of {} steps "
                     "train at the lowest rate; leave decay_iters out if it is to reach to the end",
                     decay, left, lastStep - keys.restartStep),
         /*isWarning=*/true});
  const char *const warmupKey = hasWarmupRatio(keys) ? "warmup_ratio" : "warmup_iters";
  if (warmup >= decay)
    faults.push_back(
        {warmupKey,
         {"decay_iters", "restart_step"},
         fmt::format("{} must be below decay_iters = {} (default: train_iters)",
                     hasWarmupRatio(keys) ? fmt::format("warmup_ratio = {} is {} steps, which",
                                                        keys.warmupRatio, warmup)
                                          : fmt::format("warmup_iters = {}", warmup),
                     decay)});
  if (style != LrStyle::Constant && style != LrStyle::Piecewise && !hasMinLrRatio(keys) &&
      keys.minLr > keys.lr)
    faults.push_back(
        {"min_lr", {"lr"}, fmt::format("min_lr = {} is more than lr = {}", keys.minLr, keys.lr)});
  return faults;
}

LrSettings lrSettings(const LrKeys &keys, int64_t lastStep) {
  LrSettings settings{.style = styleOf(keys),
                      .begin = keys.restartStep,
                      .lr = keys.lr,
                      .minLr = hasMinLrRatio(keys) ? keys.lr * keys.minLrRatio : keys.minLr,
                      .warmupInit = keys.warmupInit,
                      .warmupIters = warmupIters(keys, lastStep),
                      .decayIters = decayIters(keys, lastStep),
                      .wsdDecayFraction = keys.wsdDecayFraction,
                      .wsdDecayStyle = named<WsdDecayStyle>(kWsdDecayStyles, keys.wsdDecayStyle),
                      .points = {}};
  for (const std::string &text : keys.points)
    settings.points.push_back(*parsePoint(text));
  if (settings.style == LrStyle::Piecewise)
    settings.lr = std::ranges::max(settings.points, {}, &RatePoint::rate).rate;
  return settings;
}

} // namespace lmc
