// Runs a command of the user for the events of a run.
#pragma once

#include "tools/lmc-run/monitors/Command.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace lmc {

// At most one command runs at a time for each kind of event. An event that comes while the command
// of its kind runs waits until that has ended; of several events that wait, only the latest is
// kept, so that a command that hangs costs nothing.
class EventCommand {
public:
  // `command` is a text for /bin/sh. Its output goes to OUT/on_event.log.
  EventCommand(std::string command, std::string out)
      : command(std::move(command)), out(std::move(out)) {}

  // Starts the command with the event's line of JSON as its input, and LMC_EVENT (`kind`), LMC_STEP
  // and LMC_OUT in its environment. Error: it cannot be started.
  Result<void> run(const std::string &kind, int64_t step, const std::string &json);

  // Notices commands that have ended, and starts the commands of waiting events. Must be called
  // from time to time. Error: a command cannot be started.
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
