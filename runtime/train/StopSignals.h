// Stops a run on a signal: the current step is finished and a checkpoint is written.
#pragma once

#include <array>
#include <csignal>

namespace lmc {

// While an object of this class exists, SIGTERM, SIGINT (Ctrl-C), SIGHUP (the terminal is closed) and
// SIGUSR1 (which Slurm can send before its time limit) only set a flag. A second SIGINT ends the
// program at once. A SIGHUP that is ignored, as under nohup, stays ignored.
class StopSignals {
public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals &) = delete;
  StopSignals &operator=(const StopSignals &) = delete;

  bool requested() const;

private:
  static constexpr std::array<int, 4> kSignals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
  std::array<struct sigaction, kSignals.size()> before; // the handlers that were installed
};

} // namespace lmc
