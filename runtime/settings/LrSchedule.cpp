#include "runtime/settings/LrSchedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lmc {

// Returns the rate at `step` by linear interpolation between the nearest two points.
static double rateBetween(const std::vector<RatePoint> &points, int64_t step) {
  const auto after = std::ranges::upper_bound(points, step, {}, &RatePoint::step);
  if (after == points.begin())
    return points.front().rate;
  if (after == points.end())
    return points.back().rate;
  const RatePoint &from = *(after - 1);
  const double progress =
      static_cast<double>(step - from.step) / static_cast<double>(after->step - from.step);
  return from.rate + (after->rate - from.rate) * progress;
}

// Returns (rate - minLr) / (lr - minLr) after the fraction `progress` (0 to 1) of a decay.
static double remaining(LrStyle style, WsdDecayStyle wsdStyle, double progress) {
  if (style == LrStyle::Cosine || (style == LrStyle::Wsd && wsdStyle == WsdDecayStyle::Cosine))
    return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  if (style == LrStyle::Wsd && wsdStyle == WsdDecayStyle::Exponential)
    return 2.0 * std::exp2(-progress) - 1.0;
  if (style == LrStyle::Wsd && wsdStyle == WsdDecayStyle::MinusSqrt)
    return 1.0 - std::sqrt(progress);
  return 1.0 - progress;
}

double learningRate(const LrSettings &settings, int64_t step) {
  step = std::max<int64_t>(step - settings.begin, 1);
  if (settings.style == LrStyle::Piecewise)
    return rateBetween(settings.points, step);
  int64_t warmup = settings.warmupIters, decay = settings.decayIters;
  if (step <= warmup)
    return settings.warmupInit + (settings.lr - settings.warmupInit) * static_cast<double>(step) /
                                     static_cast<double>(warmup);
  if (settings.style == LrStyle::Constant)
    return settings.lr;
  if (settings.style == LrStyle::InverseSqrt && step <= decay) {
    const auto full = static_cast<double>(std::max<int64_t>(warmup, 1));
    return std::max(settings.minLr, settings.lr * std::sqrt(full / static_cast<double>(step)));
  }
  if (step >= decay)
    return settings.minLr;

  int64_t start = warmup; // the last step at the full learning rate
  if (settings.style == LrStyle::Wsd) {
    auto tail = std::llround(settings.wsdDecayFraction * static_cast<double>(decay));
    start = std::max<int64_t>(warmup, decay - tail);
    if (step <= start)
      return settings.lr;
  }
  double progress = static_cast<double>(step - start) / static_cast<double>(decay - start);
  return settings.minLr + (settings.lr - settings.minLr) *
                              remaining(settings.style, settings.wsdDecayStyle, progress);
}

} // namespace lmc
