// Reports if a run of one rank hangs.
#pragma once

#include "runtime/comm/Progress.h"
#include "runtime/comm/Stall.h"

#include <functional>
#include <string>
#include <thread>

namespace lmc {

struct Hang {
  enum class Kind {
    Hangs,  // no progress for too long; reported again when `seconds` has doubled
    GoesOn, // progress after a report of Kind::Hangs
    Ends    // no progress for the limit of Stall.h; the process must end
  };
  Kind kind = Kind::Hangs;
  double seconds = 0; // seconds without progress; for Kind::GoesOn, as in the last report
  Progress::State state;

  // Returns "no progress for 31 s (reading data, step 17: reading /data/a.bin for 31 s)".
  std::string text() const;
};

// Decides what to report.
class HangJudge {
public:
  explicit HangJudge(const StallLimits &limits) : limits(limits) {}

  // Must be called about once per second, with the time `now` in seconds. If the call comes `late`
  // seconds late, these do not count as time without progress: the process was probably stopped.
  std::optional<Hang> observe(const Progress::State &state, double now, double late = 0);

private:
  double warningLimit(const Progress::State &state) const;

  const StallLimits limits;
  std::optional<double> moved; // time of the latest progress, in seconds
  uint64_t moves = 0;
  double warnAt = 0; // seconds without progress before the next warning; 0: warningLimit()
  std::optional<Hang> reported; // the latest warning, if there was no progress after it
};

// Calls HangJudge::observe() every second on a thread of its own, and `report` with each result.
class HangWatch {
public:
  HangWatch(Progress &progress, const StallLimits &limits,
            std::function<void(const Hang &)> report);
  HangWatch(const HangWatch &) = delete; // the thread has this object's address
  HangWatch &operator=(const HangWatch &) = delete;

private:
  void watch(const std::stop_token &stop);

  Progress &progress;
  HangJudge judge;
  const std::function<void(const Hang &)> report;
  std::jthread thread;
};

} // namespace lmc
