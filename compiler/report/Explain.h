// What a plan does and what it costs, for people and for scripts.
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

// The report of a plan on a device as JSON; docs/explain.md documents the keys.
nlohmann::json explainJson(const plan::Plan &plan, const cost::DeviceSpec &spec);

// The same for a terminal.
std::string explainText(const nlohmann::json &report, const ExplainSections &sections);

// Parts of it: the lists `formed` and `refused` of the section `fusion`, which `fusions` has, and
// the section `recompute`, in which `layers` and `flops_overhead` may be missing.
std::string fusionsText(const nlohmann::json &fusions);
std::string recomputeText(const nlohmann::json &recompute);

// What to print when `plan` needs more than `budget` bytes: what takes the memory, by
// category and by buffer, and `smallestBudget`, with which the job compiles. The first
// line starts "PATH: error: "; the others are indented.
std::string budgetError(const plan::Plan &plan, const std::string &path, uint64_t budget,
                        uint64_t smallestBudget);

} // namespace lmc
