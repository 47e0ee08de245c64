// The events of a trace for chrome://tracing and ui.perfetto.dev, from the commands of a plan.
//
// `lmc explain --trace` writes a predicted step with them, and `lmc-run --trace` measured steps.
// Functions and commands have the same names, categories and tracks in both, so that the two traces
// can be compared.
#pragma once

#include "plan_generated.h"

#include <nlohmann/json.hpp>

#include <string>

namespace lmc::plan {

class TraceEvents {
public:
  // A trace is a process with the number `process` and the name `title`. It has a track of
  // functions, and a track for each stream of the plan.
  TraceEvents(const Plan &plan, int process, const std::string &title);

  // Adds a run of a function under the name `title`. `start` and `seconds` are in seconds.
  void addFunction(const std::string &title, double start, double seconds,
                   nlohmann::json arguments = nlohmann::json::object());
  // Adds a run of command `index` of a function. To `arguments` are added `function`, `command`,
  // `backward`, and for a launch `kernel`.
  void addCommand(const Function &function, uint32_t index, double start, double seconds,
                  nlohmann::json arguments);
  // Adds a point of a counter with several values.
  void addCounter(const std::string &name, double start, nlohmann::json values);

  // Returns the whole trace, in which times are in microseconds.
  nlohmann::json trace() const {
    return {{"displayTimeUnit", "ms"}, {"traceEvents", events}};
  }

private:
  // Adds an event of kind `phase`; `more` is what it has besides.
  void add(const char *phase, const std::string &name, nlohmann::json arguments,
           nlohmann::json more = nlohmann::json::object());

  const Plan &plan;
  const int process;
  nlohmann::json events = nlohmann::json::array();
};

} // namespace lmc::plan
