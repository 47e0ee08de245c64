#include "runtime/train/StopSignals.h"

namespace lmc {

static volatile std::sig_atomic_t stopFlag = 0;

static void onSignal(int) { stopFlag = 1; }

StopSignals::StopSignals() {
  stopFlag = 0;
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

bool StopSignals::requested() const { return stopFlag != 0; }

} // namespace lmc
