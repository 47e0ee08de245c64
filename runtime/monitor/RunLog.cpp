#include "runtime/monitor/RunLog.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lmc {

std::string timeText(std::chrono::system_clock::time_point time) {
  using namespace std::chrono;
  const auto milliseconds =
      duration_cast<std::chrono::milliseconds>(time.time_since_epoch()) % 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(system_clock::to_time_t(time)),
                     (milliseconds.count() + 1000) % 1000);
}

int64_t integerOf(const nlohmann::ordered_json &event, const char *key, int64_t otherwise) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

Result<RunLog> RunLog::open(const std::string &folder) {
  LMC_LET(log, LineFile::open(folder + "/log.txt"));
  LMC_LET(events, LineFile::open(folder + "/events.jsonl"));
  return RunLog(std::move(*log), std::move(*events));
}

void RunLog::line(std::string_view text) {
  const Lock held = lock();
  (void)bool(log.write(fmt::format("{} {}", timeText(std::chrono::system_clock::now()), text)));
}

void RunLog::listen(Listener to) {
  const Lock held = lock();
  listener = std::move(to);
}

void RunLog::event(const char *name, const nlohmann::ordered_json &fields) {
  nlohmann::ordered_json json = {{"time", timeText(std::chrono::system_clock::now())},
                                 {"event", name}};
  json.update(fields);
  const Lock held = lock();
  // User texts that are not UTF-8 are written with replacement characters.
  (void)bool(
      events.write(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)));
  if (listener)
    listener(name, json);
}

} // namespace lmc
