// Receives the signals of a process that waits for its children and passes stop signals on to them.
#pragma once

#include "ground/support/Signals.h"

#include <optional>

namespace lmc {

// While an object of this class exists, SIGCHLD and kStopSignals can be read from a descriptor. The
// process must have one thread. A child must call restoreSignals().
class ChildSignals {
public:
  ChildSignals();
  ~ChildSignals();
  ChildSignals(const ChildSignals &) = delete;
  ChildSignals &operator=(const ChildSignals &) = delete;

  // Returns a descriptor that is readable when next() has a signal.
  int descriptor() const { return fd; }
  std::optional<int> next();

private:
  sigset_t before;
  int fd = -1;
};

// Moves this new process to its own process group, so that a terminal's Ctrl-C does not reach it
// twice. It gets a SIGTERM when its parent dies, and ends if `parent` is no longer its parent.
void followParent(int parent);

} // namespace lmc
