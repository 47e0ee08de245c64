#include "runtime/watch/SlowSaves.h"

#include "ground/support/Median.h"

#include <fmt/format.h>

#include <utility>

namespace lmc {

WatchFindings SlowSaves::judge(uint64_t step, const char *how, double seconds) const {
  if (latest.size() < kLeast)
    return {};
  const double usual = median({latest.begin(), latest.end()});
  if (seconds < kRatio * usual || seconds < usual + kExcess)
    return {};
  return {{.warning = fmt::format("the checkpoint of step {} {} {:.3g} s, and one usually takes "
                                  "{:.3g} s: the disk is slow, or others use it",
                                  step, how, seconds, usual),
           .event = "slow_save",
           .facts = {{"step", progress.step},
                     {"saved_step", step},
                     {"seconds", seconds},
                     {"usual_seconds", usual}}}};
}

WatchFindings SlowSaves::writing(uint64_t step, double seconds) {
  if (reported)
    return {};
  WatchFindings found = judge(step, "has been written for", seconds);
  reported = !found.empty();
  return found;
}

WatchFindings SlowSaves::saved(uint64_t step, std::optional<double> seconds) {
  const bool known = std::exchange(reported, false);
  if (!seconds) // the time of a failed save does not count
    return {};
  WatchFindings found = known ? WatchFindings() : judge(step, "took", *seconds);
  latest.push_back(*seconds);
  if (latest.size() > kWindow)
    latest.pop_front();
  return found;
}

Result<std::unique_ptr<Watch>> watchSlowSaves(const WatchedRun &run) {
  return makeWatch<SlowSaves>(run.session.progress);
}

} // namespace lmc
