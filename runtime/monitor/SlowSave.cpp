#include "runtime/monitor/SlowSave.h"

#include "ground/support/Median.h"

#include <utility>

namespace lmc {

std::optional<SlowSaveWatch::Found> SlowSaveWatch::judge(double seconds) const {
  if (latest.size() < kLeast)
    return std::nullopt;
  const double usual = median({latest.begin(), latest.end()});
  if (seconds < kRatio * usual || seconds < usual + kExcess)
    return std::nullopt;
  return Found{seconds, usual};
}

std::optional<SlowSaveWatch::Found> SlowSaveWatch::goesOn(double seconds) {
  if (reported)
    return std::nullopt;
  const auto found = judge(seconds);
  reported = found.has_value();
  return found;
}

std::optional<SlowSaveWatch::Found> SlowSaveWatch::ended(double seconds) {
  const auto found = std::exchange(reported, false) ? std::nullopt : judge(seconds);
  latest.push_back(seconds);
  if (latest.size() > kWindow)
    latest.pop_front();
  return found;
}

} // namespace lmc
