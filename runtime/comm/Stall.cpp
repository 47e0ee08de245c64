#include "runtime/comm/Stall.h"

#include <fmt/format.h>

#include <algorithm>

namespace lmc {

double limitOf(const Progress::State &state, double stepSeconds, const StallLimits &limits) {
  switch (state.activity) {
  case Activity::Measuring:
    return limits.seconds;
  case Activity::Reading:
  case Activity::Computing:
    if (stepSeconds > 0)
      return std::max(limits.seconds, limits.steps * stepSeconds);
    [[fallthrough]];
  default:
    return limits.otherSeconds;
  }
}

std::string describe(const Progress::State &state) {
  std::string text = textOf(state.activity);
  if (state.step > 0)
    text += fmt::format(", step {}", state.step);
  std::string details;
  auto add = [&](const std::string &detail) {
    if (!detail.empty())
      details += (details.empty() ? ": " : "; ") + detail;
  };
  if (state.activity == Activity::Computing || state.activity == Activity::Validating ||
      state.activity == Activity::Generating)
    add(state.what);
  if (state.waits && !state.waitsFor.empty())
    add("waits for " + state.waitsFor);
  add(state.file);
  return text + details;
}

std::optional<Stall> findStall(const std::vector<RankProgress> &ranks, const StallLimits &limits) {
  double stepSeconds = 0, longestWait = 0, shortestWait = -1;
  bool allWait = true;
  for (const RankProgress &rank : ranks) {
    if (!rank.isHere)
      continue;
    stepSeconds = std::max(stepSeconds, rank.state.stepSeconds);
    if (rank.state.waits) {
      longestWait = std::max(longestWait, rank.seconds);
      shortestWait = shortestWait < 0 ? rank.seconds : std::min(shortestWait, rank.seconds);
    } else {
      allWait = false;
    }
  }
  std::optional<Stall> stall;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankProgress &rank = ranks[i];
    if (!rank.isHere)
      continue;
    const double limit = limitOf(rank.state, stepSeconds, limits);
    if (!rank.state.waits && rank.seconds >= limit && longestWait >= limit &&
        (!stall || rank.seconds > stall->seconds))
      stall = Stall{static_cast<int>(i), rank.seconds};
  }
  if (allWait && shortestWait >= limits.otherSeconds)
    stall = Stall{-1, shortestWait};
  return stall;
}

} // namespace lmc
