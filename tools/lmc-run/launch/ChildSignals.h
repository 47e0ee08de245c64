// Receives the signals of a process that waits for its children and passes stop signals on.
#pragma once

#include "ground/support/Signals.h"

#include <optional>

namespace lmc {

// For a process with one thread that computes nothing: while an object of this class exists,
// SIGCHLD and kStopSignals are read from a descriptor (ground/support/Signals.h has the rule). A
// child must call restoreSignals() before it starts its program.
class ChildSignals {
public:
  ChildSignals();
  ~ChildSignals();
  ChildSignals(const ChildSignals &) = delete;
  ChildSignals &operator=(const ChildSignals &) = delete;

  // Returns a descriptor that is readable when next() has a signal.
  int descriptor() const { return fd; }
  // Returns a signal that has arrived, if there is one.
  std::optional<int> next();

private:
  sigset_t before;
  int fd = -1;
};

// Must be called in a new process: puts it into a process group of its own, so that a terminal's
// Ctrl-C does not reach it twice, and sends it a SIGTERM when its parent dies. Ends the process if
// `parent` is not its parent any more.
void followParent(int parent);

} // namespace lmc
