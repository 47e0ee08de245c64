// Records what the main thread of a rank does, and whether it waits. Each sign of life carries this
// state to rank 0, which uses it to find ranks that hang (Stall.h).
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
  Measuring, // measuring the speed of the links between ranks
  Reading,
  Computing,
  Validating,
  Generating, // text
  Comparing,  // weights
  Saving,
  Logging, // writing to the console, to logs or metrics, or checking the run's lock
  Ending
};

// Returns a text such as "reading data".
const char *textOf(Activity activity);

class Progress {
public:
  struct State {
    Activity activity = Activity::Starting;
    uint64_t step = 0;      // the optimizer step of the activity; 0: none yet
    uint64_t moves = 0;     // changes with each progress of the main thread
    bool waits = false;     // the main thread waits for other ranks, or for its device
    // The maximum duration in seconds of the latest kWindow steps, without the work between steps.
    // The first two steps do not count, because they capture graphs. 0: no step has counted yet.
    double stepSeconds = 0;
    // The mean busy time of a step in seconds, over the last complete window of kBusyWindow steps.
    // The main thread is busy while it reads data or computes, and does not wait.
    double busySeconds = 0;
    uint64_t windows = 0; // the number of windows that have ended
    std::string what;     // the part of the activity: "micro_first, micro-step 2 of 8"
    std::string waitsFor; // during a wait: "other ranks", "its device"
    std::string file;     // the longest wait for a file, if at least 1 s: "reading PATH for 31 s"
  };
  static constexpr uint64_t kWindow = 20, kBusyWindow = 5;

  // The thread that makes this object is the main thread until another thread calls enter().
  Progress() : mainThread(std::this_thread::get_id()) {}

  // The main thread calls enter() when it begins an activity or makes progress in it. A step begins
  // when its data is read.
  void enter(Activity activity, uint64_t step);

  // Records progress in the activity. Any thread may call it.
  void move();

  // Sets State::what. Only the main thread may call it.
  void at(std::string what);

  // May be called by any thread.
  State state() const;

  // Returns the total seconds of waiting and of writing logs. Only the main thread may call it.
  struct Sums {
    double waited = 0, logged = 0;
  };
  Sums sums();

  // The main thread counts as waiting while it has an object of this class. An object of another
  // thread, or with `progress` null, has no effect.
  class Wait {
  public:
    explicit Wait(Progress *progress, const char *waitsFor = "other ranks");
    ~Wait();
    Wait(const Wait &) = delete;
    Wait &operator=(const Wait &) = delete;

  private:
    Progress *progress; // null if the object has no effect
  };

  // While an object of this class exists, the main thread counts as doing `activity`.
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
  // Begins `activity`, and returns the activity before it.
  Activity change(Activity activity);

  mutable std::mutex mutex;
  State current;
  std::thread::id mainThread;
  std::chrono::steady_clock::time_point counted; // the time of the latest count()
  double busy = 0;                               // busy seconds of the present window
  double inStep = 0;                             // seconds of the present step
  Sums total;
  uint64_t steps = 0;                   // the number of steps that have ended
  std::array<double, kWindow> latest{}; // element n % kWindow: seconds of step n
};

} // namespace lmc
