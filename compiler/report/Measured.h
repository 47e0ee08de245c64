// Compares measured times of a plan's commands with the predicted ones (lmc explain --measured).
#pragma once

#include "compiler/cost/PlanCost.h"
#include "compiler/cost/Refit.h"
#include "ground/plan/MeasuredTimes.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace lmc {

// Returns the section `measured` of the report (docs/explain.md). `cost` has the predicted times.
nlohmann::json measuredJson(const plan::Plan &plan, const cost::PlanCost &cost,
                            const plan::MeasuredTimes &times);

// Returns `spec` with rates that fit the measured times of a plan's commands.
cost::Refit refitSpec(const plan::Plan &plan, const plan::MeasuredTimes &times,
                      const cost::DeviceSpec &spec);

// Returns a fitted spec called `name` as TOML. `source` is the file with the times.
std::string refitToml(const cost::Refit &refit, const plan::MeasuredTimes &times,
                      const std::string &name, const std::string &source);

// Returns the list `fitted` of the section `measured`: the rates that a fit has changed.
nlohmann::json fittedJson(const cost::Refit &refit);

} // namespace lmc
