#include "runtime/train/StopSignals.h"

#include <atomic>

namespace lmc {

// The handler runs on whichever thread the system picks, a kernel's or a loader's too:
// a sig_atomic_t is only for the thread that was interrupted.
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
