// Prints the report as one HTML page that loads no other file.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "plan_generated.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace lmc {

// Returns the page, which is also well-formed XML. `report` is the result of explainJson.
std::string htmlReport(const plan::Plan &plan, const nlohmann::json &report,
                       const std::string &title);

} // namespace lmc
