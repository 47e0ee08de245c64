// The report as one self-contained page.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "plan_generated.h"

#include <nlohmann/json.hpp>

#include <string>

namespace lmc {

// `report` is explainJson's. The page is well-formed XML too, and loads nothing.
std::string htmlReport(const plan::Plan &plan, const nlohmann::json &report,
                       const std::string &title);

} // namespace lmc
