#include "runtime/comm/Progress.h"

#include "ground/support/FileWait.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lmc {

const char *textOf(Activity activity) {
  static constexpr const char *kTexts[] = {
      "starting",        "measuring links",   "reading data", "computing",    "validating",
      "generating text", "comparing weights", "saving",       "writing logs", "ending"};
  static_assert(std::size(kTexts) == static_cast<size_t>(Activity::Ending) + 1);
  const auto index = static_cast<size_t>(activity); // may be invalid, if another rank sent it
  return index < std::size(kTexts) ? kTexts[index] : "?";
}

// Adds the seconds since the last call to each total that `current` belongs to, such as `busy`.
void Progress::count() {
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - counted).count();
  if (current.activity == Activity::Reading || current.activity == Activity::Computing) {
    inStep += seconds;
    if (!current.waits)
      busy += seconds;
  }
  if (current.waits)
    total.waited += seconds;
  else if (current.activity == Activity::Logging)
    total.logged += seconds;
  counted = now;
}

void Progress::endStep() {
  if (++steps > 2)
    latest[steps % kWindow] = inStep;
  current.stepSeconds = *std::ranges::max_element(latest);
  inStep = 0;
  if (steps % kBusyWindow != 0)
    return;
  current.busySeconds = busy / kBusyWindow;
  ++current.windows;
  busy = 0;
}

void Progress::enter(Activity activity, uint64_t step) {
  std::lock_guard lock(mutex);
  mainThread = std::this_thread::get_id();
  count();
  if (activity == Activity::Reading && step > current.step && current.step > 0)
    endStep();
  current.activity = activity;
  current.step = step;
  ++current.moves;
}

void Progress::move() {
  std::lock_guard lock(mutex);
  ++current.moves;
}

void Progress::at(std::string what) {
  std::lock_guard lock(mutex);
  current.what = std::move(what);
  ++current.moves;
}

Activity Progress::change(Activity activity) {
  std::lock_guard lock(mutex);
  count();
  ++current.moves;
  return std::exchange(current.activity, activity);
}

Progress::State Progress::state() const {
  State now;
  {
    std::lock_guard lock(mutex);
    now = current;
  }
  now.file = longestFileWait(/*leastSeconds=*/1).value_or("");
  return now;
}

Progress::Sums Progress::sums() {
  std::lock_guard lock(mutex);
  count();
  return total;
}

Progress::Wait::Wait(Progress *of, const char *waitsFor) : progress(nullptr) {
  if (!of)
    return;
  std::lock_guard lock(of->mutex);
  if (of->current.waits || std::this_thread::get_id() != of->mainThread)
    return;
  progress = of;
  of->count();
  of->current.waits = true;
  of->current.waitsFor = waitsFor;
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
