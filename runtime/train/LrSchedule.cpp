#include "runtime/train/LrSchedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lmc {

double learningRate(const LrSettings &settings, int64_t step) {
  step -= settings.firstStep;
  int64_t warmup = settings.warmupIters, decay = settings.decayIters;
  if (step <= warmup)
    return settings.lr * static_cast<double>(step) / static_cast<double>(warmup);
  if (settings.style == LrStyle::Constant)
    return settings.lr;
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
  double remaining = settings.style == LrStyle::Cosine
                         ? 0.5 * (1.0 + std::cos(std::numbers::pi * progress))
                         : 1.0 - progress;
  return settings.minLr + (settings.lr - settings.minLr) * remaining;
}

} // namespace lmc
