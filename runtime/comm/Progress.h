// What the main thread of a rank is doing: whether it gets on, and whether it waits for others.
//
// The trainer says what it does; whoever waits for other ranks or for a device marks the wait. The
// control connection sends the state to rank 0 with each sign of life, where Stall.h judges it.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

namespace lmc {

enum class Activity : uint8_t { Starting, Reading, Computing, Validating, Saving, Ending };

// Returns "reading data".
const char *textOf(Activity activity);

class Progress {
public:
  struct State {
    Activity activity = Activity::Starting;
    uint64_t step = 0;      // the optimizer step of the activity; 0: none yet
    uint64_t moves = 0;     // another number as soon as the main thread has got on
    bool waits = false;     // the main thread waits for other ranks, or for its device
    double stepSeconds = 0; // of the longest step so far; 0: no step has ended
    // The mean time of a step in which the main thread read data or computed, and did not wait,
    // over the latest window of kWindow steps; and how many windows have ended.
    double busySeconds = 0;
    uint64_t windows = 0;
  };
  static constexpr uint64_t kWindow = 20;

  // The main thread, which is the one that calls this, begins with something else or gets on with
  // it.
  void enter(Activity activity, uint64_t step);

  // A step has ended, which took so long.
  void endStep(double seconds);

  // May be called by any thread.
  State state() const;

  // The main thread waits as long as such an object exists. It has no effect on other threads, and
  // without a Progress.
  class Wait {
  public:
    explicit Wait(Progress *progress);
    ~Wait();
    Wait(const Wait &) = delete;
    Wait &operator=(const Wait &) = delete;

  private:
    Progress *progress; // null: also if the main thread waits already
  };

private:
  void count();

  mutable std::mutex mutex;
  State current;
  std::thread::id mainThread;
  std::chrono::steady_clock::time_point counted; // until when `busy` has been counted
  double busy = 0;                               // seconds in this window
  uint64_t steps = 0;                            // in this window
};

} // namespace lmc
