// The history of a run: OUT/log.txt has all lines of the console, and OUT/events.jsonl has one JSON
// object per event. All starts of the run append to them.
#pragma once

#include "runtime/monitor/files/LineFile.h"

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace lmc {

// Returns a time as "2026-11-22T13:40:02.125Z".
std::string timeText(std::chrono::system_clock::time_point time);

// Returns the whole number `key` of an event; `otherwise` if the event has none.
int64_t integerOf(const nlohmann::ordered_json &event, const char *key, int64_t otherwise);

// Any thread may call the functions.
class RunLog {
public:
  // Opens or creates the two files in `folder`.
  static Result<RunLog> open(const std::string &folder);

  // Appends "TIME TEXT" to log.txt.
  void line(std::string_view text);

  // Appends {"time": TIME, "event": NAME, ...FIELDS} to events.jsonl.
  void event(const char *name, const nlohmann::ordered_json &fields);

  // Calls `listener` with each later event, after the event is written. The call comes from the
  // thread that writes, which holds the lock. Null: no calls.
  using Listener =
      std::function<void(const std::string &name, const nlohmann::ordered_json &event)>;
  void listen(Listener to);

  // Keeps other threads from writing. The thread with the lock may call all functions.
  using Lock = std::unique_lock<std::recursive_timed_mutex>;
  Lock lock() { return Lock(*mutex); }
  // Waits at most `limit` for the lock. The caller must check whether it got the lock.
  Lock lockWithin(std::chrono::milliseconds limit) { return Lock(*mutex, limit); }

private:
  RunLog(LineFile log, LineFile events) : log(std::move(log)), events(std::move(events)) {}
  // A line that cannot be written is kept and written later, and never stops a run.
  LineFile log, events;
  Listener listener;
  // recursive, because a listener may write to the log
  std::unique_ptr<std::recursive_timed_mutex> mutex =
      std::make_unique<std::recursive_timed_mutex>();
};

} // namespace lmc
