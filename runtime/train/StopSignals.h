// SIGTERM and SIGINT as a wish: the step is finished, a checkpoint written.
#pragma once

#include <csignal>

namespace lmc {

// While one of these lives, both signals only set a flag. A second SIGINT
// (a second Ctrl-C) ends the program at once.
class StopSignals {
public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals &) = delete;
  StopSignals &operator=(const StopSignals &) = delete;

  bool requested() const;

private:
  struct sigaction terminate, interrupt; // what was installed before
};

} // namespace lmc
