// Receives the signals of a process that waits for its children and passes stop signals on to them.
#pragma once

#include "ground/support/Signals.h"

#include <optional>

namespace lmc {

// While an object of this class exists, next() returns SIGCHLD and the signals of kStopSignals. The
// process must have only one thread. A new child process must call restoreSignals().
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

// Moves this new process to its own process group, because a terminal sends Ctrl-C to a whole
// group. If its parent dies, this process gets a SIGTERM. If `parent` has died before, this process
// ends.
void followParent(int parent);

} // namespace lmc
