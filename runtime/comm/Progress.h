// Records what the main thread of a rank does: if it makes progress, or waits for others.
//
// The trainer records each activity; code that waits for other ranks or for a device marks the
// wait. The control connection sends the state to rank 0 with each sign of life, where Stall.h
// judges it.
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
  Logging, // writing to the console, to logs or metrics, or checking the run's lock
  Ending
};

// Returns "reading data".
const char *textOf(Activity activity);

class Progress {
public:
  struct State {
    Activity activity = Activity::Starting;
    uint64_t step = 0;      // the optimizer step of the activity; 0: none yet
    uint64_t moves = 0;     // a number that changes with each progress of the main thread
    bool waits = false;     // the main thread waits for other ranks, or for its device
    // Seconds of the longest of the latest kWindow steps, with the reading of data, but without
    // work beside steps. The first two steps do not count, because they also do work that is done
    // only once, such as the capture of graphs. 0: no other step has ended.
    double stepSeconds = 0;
    // The mean busy time of a step (the main thread reads data or computes, and does not wait) over
    // the latest window of kBusyWindow steps; and the number of windows that have ended.
    double busySeconds = 0;
    uint64_t windows = 0;
    std::string what;     // function of the plan that the main thread runs, and its micro-step
    std::string waitsFor; // during a wait: "other ranks", "its device"
    // The file that a thread of this process has been reading or writing for at least a second
    // (ground/support/FileWait.h).
    std::string file;
  };
  static constexpr uint64_t kWindow = 20, kBusyWindow = 5;

  // The thread that makes this object is the main thread until another one calls enter().
  Progress() : mainThread(std::this_thread::get_id()) {}

  // The main thread calls it when it begins an activity or makes progress in it. A step begins when
  // the thread reads the data of a later step; the step before it has then ended.
  void enter(Activity activity, uint64_t step);

  // Reports progress in the activity of the main thread, whether helper threads do the work or not.
  void move();

  // The main thread calls it when it begins a part of its activity: State::what.
  void at(std::string what);

  // May be called by any thread.
  State state() const;

  // Seconds since the start in which the main thread waited, and in which it wrote logs. Only the
  // main thread calls it.
  struct Sums {
    double waited = 0, logged = 0;
  };
  Sums sums();

  // As long as such an object exists, the main thread waits. On another thread, or without a
  // Progress, the object has no effect.
  class Wait {
  public:
    explicit Wait(Progress *progress, const char *waitsFor = "other ranks");
    ~Wait();
    Wait(const Wait &) = delete;
    Wait &operator=(const Wait &) = delete;

  private:
    Progress *progress; // null if the main thread waits already, too
  };

  // As long as such an object exists, the main thread, which makes it, does another activity.
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
  std::chrono::steady_clock::time_point counted; // end of the time that `busy` and `inStep` include
  double busy = 0;                               // seconds in this window
  double inStep = 0;                             // seconds in this step
  Sums total;
  uint64_t steps = 0;                            // that have ended
  std::array<double, kWindow> latest{};          // seconds of step n are at n % kWindow
};

} // namespace lmc
