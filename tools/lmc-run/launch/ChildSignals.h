// The signals of a process that waits for its children, and passes on what asks it to stop.
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

  // The descriptor is readable if next() has a signal.
  int descriptor() const { return fd; }
  // Returns a signal that has come, if there is one.
  std::optional<int> next();

private:
  sigset_t before;
  int fd = -1;
};

// For a new process: puts it into a process group of its own, which keeps a terminal's Ctrl-C from
// reaching it twice, and lets it get a SIGTERM when its parent dies. Ends the process if its parent
// is not `parent` any more.
void followParent(int parent);

} // namespace lmc
