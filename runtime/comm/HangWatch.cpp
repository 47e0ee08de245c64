#include "runtime/comm/HangWatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace lmc {

std::string Hang::text() const {
  return fmt::format("no progress for {:.0f} s ({})", seconds, describe(state));
}

// A save's limit is this factor times StallLimits::seconds: writing a tensor may take a minute.
static constexpr double kLongWrite = 6;

// Returns the seconds without progress after which a warning is given. A warning ends no run,
// so work between steps has a short limit too. The limit for logs is long unless a file is being
// written, because a user may stop the console with Ctrl-S for a long time.
double HangJudge::warningLimit(const Progress::State &state) const {
  switch (state.activity) {
  case Activity::Validating:
  case Activity::Generating:
  case Activity::Comparing:
    return std::max(limits.seconds, limits.steps * state.stepSeconds);
  case Activity::Saving:
    return kLongWrite * limits.seconds;
  case Activity::Logging:
    return state.file.empty() ? limits.otherSeconds : limits.seconds;
  default:
    return limitOf(state, state.stepSeconds, limits);
  }
}

std::optional<Hang> HangJudge::observe(const Progress::State &state, double now, double late) {
  if (!moved || state.moves != moves) {
    moves = state.moves;
    moved = now;
    warnAt = 0;
    if (const auto before = std::exchange(reported, std::nullopt))
      return Hang{Hang::Kind::GoesOn, before->seconds, before->state};
    return std::nullopt;
  }
  *moved = std::min(*moved + std::max(late, 0.0), now);
  const double seconds = now - *moved;
  if (findStall({RankProgress{state, seconds, true}}, limits))
    return Hang{Hang::Kind::Ends, seconds, state};
  if (seconds < std::max(warningLimit(state), warnAt))
    return std::nullopt;
  warnAt = 2 * seconds;
  reported = Hang{Hang::Kind::Hangs, seconds, state};
  return reported;
}

HangWatch::HangWatch(Progress &progress, const StallLimits &limits,
                     std::function<void(const Hang &)> report)
    : progress(progress), judge(limits), report(std::move(report)),
      thread([this](const std::stop_token &stop) { watch(stop); }) {}

void HangWatch::watch(const std::stop_token &stop) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kBeat(1);
  auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  const auto start = Clock::now();
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  for (;;) {
    const auto due = Clock::now() + kBeat;
    stopped.wait_until(lock, stop, due, [] { return false; });
    if (stop.stop_requested())
      return;
    const auto now = Clock::now();
    if (const auto hang = judge.observe(progress.state(), seconds(now - start),
                                        now - due > kBeat ? seconds(now - due) : 0))
      report(*hang);
  }
}

} // namespace lmc
