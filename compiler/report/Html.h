// The report as one self-contained HTML page.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "plan_generated.h"

#include <nlohmann/json.hpp>

#include <string>

namespace lmc {

// `report` is the result of explainJson. The page is also well-formed XML, and loads no other file.
std::string htmlReport(const plan::Plan &plan, const nlohmann::json &report,
                       const std::string &title);

} // namespace lmc
