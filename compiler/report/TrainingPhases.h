// Writes the section "training_phases" of a report (docs/explain.md): what each phase needs.
#pragma once

#include "compiler/cost/DeviceSpec.h"
#include "ground/plan/PlanFile.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace lmc {

// Returns a list with an entry for each phase of the plan; empty for a run without phases.
nlohmann::json trainingPhasesJson(const PlanFile &plan, const cost::DeviceSpec &spec);

// Returns the list as a table for a terminal; "" if it is empty.
std::string trainingPhasesText(const nlohmann::json &phases);

} // namespace lmc
