#include "runtime/comm/Progress.h"

#include <algorithm>

namespace lmc {

const char *textOf(Activity activity) {
  switch (activity) {
  case Activity::Starting:
    return "starting";
  case Activity::Reading:
    return "reading data";
  case Activity::Computing:
    return "computing";
  case Activity::Validating:
    return "validating";
  case Activity::Saving:
    return "saving";
  case Activity::Ending:
    return "ending";
  }
  return "?";
}

// Adds the time since the last call to that of the window, if the main thread was busy.
void Progress::count() {
  const auto now = std::chrono::steady_clock::now();
  const bool isInStep =
      current.activity == Activity::Reading || current.activity == Activity::Computing;
  if (isInStep && !current.waits)
    busy += std::chrono::duration<double>(now - counted).count();
  counted = now;
}

void Progress::enter(Activity activity, uint64_t step) {
  std::lock_guard lock(mutex);
  mainThread = std::this_thread::get_id();
  count();
  if (activity == Activity::Reading && step > current.step && current.step > 0 &&
      ++steps == kWindow) {
    current.busySeconds = busy / kWindow;
    ++current.windows;
    busy = 0;
    steps = 0;
  }
  current.activity = activity;
  current.step = step;
  ++current.moves;
}

void Progress::endStep(double seconds) {
  std::lock_guard lock(mutex);
  current.stepSeconds = std::max(current.stepSeconds, seconds);
}

Progress::State Progress::state() const {
  std::lock_guard lock(mutex);
  return current;
}

Progress::Wait::Wait(Progress *of) : progress(nullptr) {
  if (!of)
    return;
  std::lock_guard lock(of->mutex);
  if (of->current.waits || std::this_thread::get_id() != of->mainThread)
    return;
  progress = of;
  of->count();
  of->current.waits = true;
  ++of->current.moves;
}

Progress::Wait::~Wait() {
  if (!progress)
    return;
  std::lock_guard lock(progress->mutex);
  progress->count();
  progress->current.waits = false;
  ++progress->current.moves;
}

} // namespace lmc
