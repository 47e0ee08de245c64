// Starts the program lmc-wandb, which sends the files of a run to Weights & Biases.
#pragma once

#include "ground/config/Config.h"
#include "tools/lmc-run/monitors/Clock.h"
#include "tools/lmc-run/monitors/Command.h"

#include <chrono>
#include <optional>
#include <string>

namespace lmc {

class WandbSender {
public:
  // Sends to the W&B project that `settings` names, which must not be "".
  WandbSender(MonitoringConfig settings, std::string out, MonitorClock clock = monitorTime)
      : settings(std::move(settings)), out(std::move(out)), clock(std::move(clock)) {}
  // Tells the program that the run has ended. The program then sends the rest, and ends.
  ~WandbSender();
  WandbSender(const WandbSender &) = delete;
  WandbSender &operator=(const WandbSender &) = delete;

  // Must be called regularly. Starts the program if it does not run, but waits about a minute after
  // a failure. Returns true if the program has run for at least a minute. Error: it cannot be
  // started, or has failed.
  Result<bool> poll();

private:
  Result<void> start();

  MonitoringConfig settings;
  std::string out;
  MonitorClock clock;
  std::optional<Command> running;
  int alive = -1; // end of a pipe that the program watches, closed when this process ends
  std::chrono::steady_clock::time_point next; // a minute after the program's last start or end
  bool isOver = false;                        // true if another start would be useless
};

} // namespace lmc
