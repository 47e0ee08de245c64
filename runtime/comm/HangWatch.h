// Watches a run of one rank, for which no other rank waits, and reports what hangs.
#pragma once

#include "runtime/comm/Progress.h"
#include "runtime/comm/Stall.h"

#include <functional>
#include <string>
#include <thread>

namespace lmc {

// What a watch has found.
struct Hang {
  enum class Kind {
    Hangs,  // the rank makes no progress for too long; reported again when `seconds` has doubled
    GoesOn, // the rank, which was reported as hanging, has made progress
    Ends    // the rank counts as lost (Stall.h), and the process must end
  };
  Kind kind = Kind::Hangs;
  double seconds = 0;    // seconds without progress; of GoesOn, those that were reported last
  Progress::State state; // what the rank did during these seconds

  // Returns "no progress for 31 s (reading data, step 17: reading /data/a.bin for 31 s)".
  std::string text() const;
};

// Decides what to report. The caller gives the time, in seconds.
class HangJudge {
public:
  explicit HangJudge(const StallLimits &limits) : limits(limits) {}

  // Must be called now and then with the present state. `late` is by how many seconds this call is
  // later than planned. This thread then did not run for a time (the process was stopped), and the
  // others probably did not either, so that this time does not count.
  std::optional<Hang> observe(const Progress::State &state, double now, double late = 0);

private:
  double warningLimit(const Progress::State &state) const;

  const StallLimits limits;
  std::optional<double> moved; // time of the latest progress, in seconds
  uint64_t moves = 0;
  double warnAt = 0; // seconds without progress before the next warning; 0: warningLimit()
  std::optional<Hang> reported; // the latest warning, if there was no progress since
};

// Looks at the progress every second on a thread of its own, which also calls `report`.
class HangWatch {
public:
  HangWatch(Progress &progress, const StallLimits &limits,
            std::function<void(const Hang &)> report);

private:
  void watch(const std::stop_token &stop);

  Progress &progress;
  HangJudge judge;
  const std::function<void(const Hang &)> report;
  std::jthread thread;
};

} // namespace lmc
