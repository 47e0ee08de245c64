// Stops a run on a signal: the current step is finished and a checkpoint is written.
#pragma once

#include <array>
#include <csignal>

namespace lmc {

// While an object of this class exists, SIGTERM, SIGINT (Ctrl-C), SIGHUP (the terminal is closed) and
// SIGUSR1 (which Slurm can send before its time limit) only set a flag. A second SIGINT ends the
// program at once. A SIGHUP that is ignored, as under nohup, stays ignored. SIGPIPE (nobody reads the
// console any more) and SIGXFSZ (a file is too large) are ignored: the write then is an error.
class StopSignals {
public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals &) = delete;
  StopSignals &operator=(const StopSignals &) = delete;

  bool requested() const;

private:
  static constexpr std::array<int, 6> kSignals = {SIGTERM, SIGINT,  SIGHUP,
                                                  SIGUSR1, SIGPIPE, SIGXFSZ};
  std::array<struct sigaction, kSignals.size()> before; // the handlers that were installed
};

} // namespace lmc
