// Stops a run on SIGTERM or SIGINT: the current step is finished and a checkpoint is written.
#pragma once

#include <csignal>

namespace lmc {

// While an object of this class exists, SIGTERM and SIGINT only set a flag. A second SIGINT
// (Ctrl-C) ends the program at once.
class StopSignals {
public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals &) = delete;
  StopSignals &operator=(const StopSignals &) = delete;

  bool requested() const;

private:
  struct sigaction terminate, interrupt; // the handlers that were installed before
};

} // namespace lmc
