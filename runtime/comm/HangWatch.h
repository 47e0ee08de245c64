// Watches a run of one rank, which nobody else waits for: it names what hangs.
#pragma once

#include "runtime/comm/Progress.h"
#include "runtime/comm/Stall.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace lmc {

// What a watch has found.
struct Hang {
  enum class Kind {
    Hangs,  // no progress for the time of the limit, and again after each doubling of the time
    GoesOn, // progress after that
    Ends    // the rank counts as lost (Stall.h): the process is to be ended
  };
  Kind kind = Kind::Hangs;
  double seconds = 0;    // without progress
  Progress::State state; // at that time

  // Returns "no progress for 31 s (reading data, step 17: reading /data/a.bin for 31 s)".
  std::string text() const;
};

// Decides what to say. The time is injected, in seconds.
class HangJudge {
public:
  explicit HangJudge(const StallLimits &limits) : limits(limits) {}

  // Is given the state now and then. `late`: by how much later than planned. Then this thread did
  // not run for a time, as in a process that was stopped, and probably the others did not either:
  // that time does not count.
  std::optional<Hang> observe(const Progress::State &state, double now, double late = 0);

private:
  double warningLimit(const Progress::State &state) const;

  const StallLimits limits;
  std::optional<double> moved; // when moves was another number
  uint64_t moves = 0;
  double warnAt = 0;        // seconds without progress at the next warning; 0: the limit
  std::optional<Hang> told; // the latest warning since the last progress
};

// Looks at the progress every second on a thread of its own, and calls `tell` there.
class HangWatch {
public:
  HangWatch(Progress &progress, const StallLimits &limits, std::function<void(const Hang &)> tell);
  ~HangWatch();
  HangWatch(const HangWatch &) = delete;
  HangWatch &operator=(const HangWatch &) = delete;

private:
  void watch();

  Progress &progress;
  HangJudge judge;
  const std::function<void(const Hang &)> tell;
  std::mutex mutex;
  std::condition_variable changed;
  bool closing = false;
  std::thread thread;
};

} // namespace lmc
