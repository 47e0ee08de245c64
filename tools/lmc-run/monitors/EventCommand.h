// Runs the user's command for the events of a run (monitoring.on_event).
#pragma once

#include "tools/lmc-run/monitors/Command.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace lmc {

// For each kind of event, at most one command runs at a time. Of the events that come while it
// runs, only the last one waits; the others are dropped.
class EventCommand {
public:
  // `command` is a text for /bin/sh. Its output goes to OUT/on_event.log.
  EventCommand(std::string command, std::string out)
      : command(std::move(command)), out(std::move(out)) {}

  // Starts the command with the event as its input, and LMC_EVENT (`kind`), LMC_STEP and LMC_OUT in
  // its environment.
  Result<void> run(const std::string &kind, int64_t step, const std::string &json);

  // Starts the commands of waiting events. Must be called regularly.
  Result<void> poll();

private:
  struct Event {
    int64_t step = 0;
    std::string json;
  };
  struct Kind {
    std::optional<Command> running;
    std::optional<Event> waiting;
  };
  Result<void> start(const std::string &name, Kind &kind, const Event &event);

  std::string command, out;
  std::map<std::string, Kind> kinds;
};

} // namespace lmc
