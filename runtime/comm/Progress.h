// What the main thread of a rank is doing: whether it gets on, and whether it waits for others.
//
// The trainer says what it does; whoever waits for other ranks or for a device marks the wait. The
// control connection sends the state to rank 0 with each sign of life, where Stall.h judges it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace lmc {

enum class Activity : uint8_t {
  Starting,
  Measuring, // the links between ranks
  Reading,
  Computing,
  Validating,
  Generating, // text
  Comparing,  // weights
  Saving,
  Logging, // to the console, to logs and metrics, or looking at the run's lock
  Ending
};

// Returns "reading data".
const char *textOf(Activity activity);

class Progress {
public:
  struct State {
    Activity activity = Activity::Starting;
    uint64_t step = 0;      // the optimizer step of the activity; 0: none yet
    uint64_t moves = 0;     // another number as soon as the main thread has got on
    bool waits = false;     // the main thread waits for other ranks, or for its device
    // The time that the longest of the latest kWindow steps took, reading data included, and work
    // beside steps not. The first two steps do not count, because they also do what is done only
    // once, such as the capture of graphs. 0: no other step has ended.
    double stepSeconds = 0;
    // The mean time of a step in which the main thread read data or computed, and did not wait,
    // over the latest window of kBusyWindow steps; and how many windows have ended.
    double busySeconds = 0;
    uint64_t windows = 0;
    std::string what; // which function of the plan the main thread runs, and in which micro-step
    std::string waitsFor; // while it waits: "other ranks", "its device"
    // The file that a thread of this process has been reading or writing for at least a second
    // (ground/support/FileWait.h).
    std::string file;
  };
  static constexpr uint64_t kWindow = 20, kBusyWindow = 5;

  // The thread that makes this object is the main thread until another one calls enter().
  Progress() : mainThread(std::this_thread::get_id()) {}

  // The main thread, which is the one that calls this, begins with something else or gets on with
  // it. A step begins when it reads the data of a later step, and then the step before has ended.
  void enter(Activity activity, uint64_t step);

  // What the main thread does, with helper threads or without, has got on.
  void move();

  // The main thread begins with a part of its activity: State::what.
  void at(std::string what);

  // May be called by any thread.
  State state() const;

  // Seconds since the beginning that the main thread has waited, and written logs. The main thread
  // calls it.
  struct Sums {
    double waited = 0, logged = 0;
  };
  Sums sums();

  // The main thread waits as long as such an object exists. It has no effect on other threads, and
  // without a Progress.
  class Wait {
  public:
    explicit Wait(Progress *progress, const char *waitsFor = "other ranks");
    ~Wait();
    Wait(const Wait &) = delete;
    Wait &operator=(const Wait &) = delete;

  private:
    Progress *progress; // null: also if the main thread waits already
  };

  // The main thread, which makes such an object, does something else as long as the object exists.
  class Aside {
  public:
    Aside(Progress &progress, Activity activity) : progress(progress) {
      before = progress.change(activity);
    }
    ~Aside() { progress.change(before); }
    Aside(const Aside &) = delete;
    Aside &operator=(const Aside &) = delete;

  private:
    Progress &progress;
    Activity before;
  };

private:
  void count();
  void endStep();
  // Returns the activity until now.
  Activity change(Activity activity);

  mutable std::mutex mutex;
  State current;
  std::thread::id mainThread;
  std::chrono::steady_clock::time_point counted; // until when the next two have been counted
  double busy = 0;                               // seconds in this window
  double inStep = 0;                             // seconds in this step
  Sums total;
  uint64_t steps = 0;                            // that have ended
  std::array<double, kWindow> latest{}; // seconds of steps; that of step n is at n % kWindow
};

} // namespace lmc
