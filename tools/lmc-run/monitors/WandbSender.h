// Lets the program lmc-wandb (tools/lmc-wandb) send what a run writes to Weights & Biases. lmc-run
// itself never uses the network for that.
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
  // Sends to the W&B project of the settings, which is not "".
  WandbSender(MonitoringConfig settings, std::string out, MonitorClock clock = monitorTime)
      : settings(std::move(settings)), out(std::move(out)), clock(std::move(clock)) {}
  // Lets the program know that the run has ended. It then sends the rest, and ends too.
  ~WandbSender();
  WandbSender(const WandbSender &) = delete;
  WandbSender &operator=(const WandbSender &) = delete;

  // Starts the program if it does not run: the first time at once, and after it has failed again
  // about a minute later. Must be called from time to time. Returns true if the program works: it
  // runs, and was started a minute ago or earlier. Error: it cannot be started, or it has failed;
  // the caller gives it the next time all the same.
  Result<bool> poll();

private:
  Result<void> start();

  MonitoringConfig settings;
  std::string out;
  MonitorClock clock;
  std::optional<Command> running;
  int alive = -1; // the program reads from the other end, and finds its end when this process ends
  std::chrono::steady_clock::time_point next; // a minute after its last start or end
  bool isOver = false;                        // true if another start would not help
};

} // namespace lmc
