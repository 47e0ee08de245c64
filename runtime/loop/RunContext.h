// The objects of a run that the trainer and its saves share.
#pragma once

#include "ground/support/Signals.h"
#include "runtime/folder/RunDirectory.h"
#include "runtime/monitor/Console.h"
#include "runtime/monitor/RunObserver.h"
#include "runtime/settings/RunOptions.h"
#include "runtime/step/Session.h"
#include "runtime/watch/Watch.h"

#include <algorithm>

namespace lmc {

// One kind of work other than steps: how many seconds it took in total, and how often it was done.
struct TimeSpent {
  double seconds = 0;
  int64_t times = 0;
  void add(double more) { seconds += more, ++times; }
  double mean() const { return times == 0 ? 0 : seconds / static_cast<double>(times); }
};

// Returns true if `interval` is not 0, and `step` is a multiple of it.
inline bool isDue(uint64_t step, int64_t interval) {
  return interval > 0 && step % static_cast<uint64_t>(interval) == 0;
}

struct RunContext {
  Session &session;
  const RunOptions &options;
  RunDirectory &directory;
  Console &console;
  RunLog &log;
  RunObserver *const observer; // null on all ranks but the first
  const StopSignals &stop;
  TimeBudget &time;
  const RunPhase phase;
  const uint64_t totalSteps; // number of the run's last step

  Communicator &ranks() const { return session.world.all(); }
  Progress &progress() const { return session.world.progress(); }
  bool isFirstRank() const { return session.world.rank() == 0; }

  // Writes warnings of watches to the console, and their events to events.jsonl.
  void report(const WatchFindings &found) const {
    for (const WatchFinding &finding : found) {
      if (!finding.warning.empty())
        console.warning(finding.warning);
      if (*finding.event)
        log.event(finding.event, finding.facts);
    }
  }

  // Returns the estimated seconds of future work that is done at each multiple of `interval`, and
  // at least `least` times.
  double pendingSeconds(const TimeSpent &spent, int64_t interval, int64_t least) const {
    const int64_t times =
        interval > 0 ? int64_t(totalSteps) / interval - int64_t(session.progress.step) / interval
                     : 0;
    return spent.mean() * static_cast<double>(std::max(times, least));
  }
};

} // namespace lmc
