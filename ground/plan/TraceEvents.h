// Makes a trace of a plan's commands for chrome://tracing and ui.perfetto.dev. `lmc explain
// --trace` writes a predicted step; `lmc-run --trace` writes measured steps, with the same names
// and tracks.
#pragma once

#include "plan_generated.h"

#include <nlohmann/json.hpp>

#include <string>

namespace lmc::plan {

class TraceEvents {
public:
  // Begins a trace. Process number `process` has the name `title`, one track for functions, and one
  // track for each stream of the plan.
  TraceEvents(const Plan &plan, int process, const std::string &title);

  // Adds a run of a function with the name `title`, which starts at `start` (seconds).
  void addFunction(const std::string &title, double start, double seconds,
                   nlohmann::json arguments = nlohmann::json::object());
  // Adds a run of command `index` of a function.
  void addCommand(const Function &function, uint32_t index, double start, double seconds,
                  nlohmann::json arguments);
  // Adds the values of a counter at `start` (seconds).
  void addCounter(const std::string &name, double start, nlohmann::json values);

  // Returns the whole trace, with times in microseconds.
  nlohmann::json trace() const { return {{"displayTimeUnit", "ms"}, {"traceEvents", events}}; }

private:
  // Adds an event. `phase` is its type in Chrome's trace format; `more` are additional members.
  void add(const char *phase, const std::string &name, nlohmann::json arguments,
           nlohmann::json more = nlohmann::json::object());

  const Plan &plan;
  const int process;
  nlohmann::json events = nlohmann::json::array();
};

} // namespace lmc::plan
