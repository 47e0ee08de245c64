#include "runtime/train/StopSignals.h"

#include <atomic>

namespace lmc {

// The system may run the signal handler on any thread, including those of kernels and loaders. A
// sig_atomic_t would be safe only within the interrupted thread, so the flag is atomic.
static std::atomic<bool> stopFlag = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not lock");

static void onSignal(int) { stopFlag = true; }

StopSignals::StopSignals() {
  stopFlag = false;
  struct sigaction action {};
  action.sa_handler = onSignal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGTERM, &action, &terminate);
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  sigaction(SIGINT, &action, &interrupt);
}

StopSignals::~StopSignals() {
  sigaction(SIGTERM, &terminate, nullptr);
  sigaction(SIGINT, &interrupt, nullptr);
}

bool StopSignals::requested() const { return stopFlag; }

} // namespace lmc
