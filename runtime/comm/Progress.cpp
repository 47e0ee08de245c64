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

void Progress::enter(Activity activity, uint64_t step) {
  std::lock_guard lock(mutex);
  mainThread = std::this_thread::get_id();
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
  of->current.waits = true;
  ++of->current.moves;
}

Progress::Wait::~Wait() {
  if (!progress)
    return;
  std::lock_guard lock(progress->mutex);
  progress->current.waits = false;
  ++progress->current.moves;
}

} // namespace lmc
