// Reports on the contents and the predicted cost of a plan, for people and for scripts.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "plan_generated.h"

#include <nlohmann/json.hpp>

#include <string>

namespace lmc {

struct ExplainSections {
  bool memory = true, fusion = true, recompute = true, cost = true, comm = true, kernels = true,
       commands = true;
  bool allFusions = false; // refused ones each on a line, instead of folded by reason
};

// Returns the report of a plan on a device as JSON; docs/explain.md documents the keys.
nlohmann::json explainJson(const plan::Plan &plan, const cost::DeviceSpec &spec);

// Returns the report as text for a terminal.
std::string explainText(const nlohmann::json &report, const ExplainSections &sections);

// Print parts of the report: the lists `formed` and `refused` of the section `fusion` (given as
// `fusions`), and the section `recompute`, whose `layers` and `flops_overhead` may be missing.
std::string fusionsText(const nlohmann::json &fusions);
std::string recomputeText(const nlohmann::json &recompute);

// Returns the error for a plan that needs more than `budget` bytes. It lists the bytes by category
// and by buffer, and names `smallestBudget`, with which the job compiles. The first line starts
// with "PATH: error: "; the others are indented.
std::string budgetError(const plan::Plan &plan, const std::string &path, uint64_t budget,
                        uint64_t smallestBudget);

} // namespace lmc
