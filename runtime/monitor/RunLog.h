// The history of a run: OUT/log.txt has all that the console says, and OUT/events.jsonl one JSON
// object per event. Both only grow, over all starts of the run.
#pragma once

#include "runtime/monitor/LineFile.h"

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace lmc {

// Returns a time as "2026-11-22T13:40:02.125Z".
std::string timeText(std::chrono::system_clock::time_point time);

// Any thread may call its functions.
class RunLog {
public:
  // Opens or creates the two files in `folder`.
  static Result<RunLog> open(const std::string &folder);

  // Appends "TIME TEXT" to log.txt.
  void line(std::string_view text);

  // Appends {"time": TIME, "event": NAME, ...FIELDS} to events.jsonl.
  void event(const char *name, const nlohmann::ordered_json &fields);
  void event(const char *name); // without fields

private:
  RunLog(LineFile log, LineFile events) : log(std::move(log)), events(std::move(events)) {}
  // A line that cannot be written is kept and written later; it never stops a run.
  LineFile log, events;
  std::unique_ptr<std::mutex> mutex = std::make_unique<std::mutex>();
};

} // namespace lmc
