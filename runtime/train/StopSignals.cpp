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
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action {};
    const bool ignored = kSignals[i] == SIGPIPE || kSignals[i] == SIGXFSZ;
    action.sa_handler = ignored ? SIG_IGN : onSignal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART | (kSignals[i] == SIGINT ? SA_RESETHAND : 0);
    sigaction(kSignals[i], &action, &before[i]);
    if (kSignals[i] == SIGHUP && before[i].sa_handler == SIG_IGN)
      sigaction(SIGHUP, &before[i], nullptr);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i)
    sigaction(kSignals[i], &before[i], nullptr);
}

bool StopSignals::requested() const { return stopFlag; }

} // namespace lmc
