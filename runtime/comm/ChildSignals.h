// The signals of a process that waits for its children, and passes on what asks it to stop.
#pragma once

#include <csignal>
#include <optional>

namespace lmc {

// While an object of this class exists, SIGCHLD and the signals that end a run in order (SIGTERM,
// SIGINT, SIGHUP, SIGUSR1) are blocked and read from a descriptor instead. A child must call
// restore() before it starts its program.
class ChildSignals {
public:
  ChildSignals();
  ~ChildSignals();
  ChildSignals(const ChildSignals &) = delete;
  ChildSignals &operator=(const ChildSignals &) = delete;

  void restore() const { sigprocmask(SIG_SETMASK, &before, nullptr); }
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
