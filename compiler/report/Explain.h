// What a plan does and what it costs, for people and for scripts.
#pragma once

#include "plan_generated.h"

#include <nlohmann/json.hpp>

#include <string>

namespace lmc {

struct ExplainSections {
  bool memory = true, kernels = true, commands = true;
};

// The report of a plan as JSON; the keys are documented in docs/explain.md:
// model.*, batch.*, memory.* (bytes), kernels[], functions[].
nlohmann::json explainJson(const plan::Plan &plan);

// The same for a terminal.
std::string explainText(const nlohmann::json &report, const ExplainSections &sections);

} // namespace lmc
