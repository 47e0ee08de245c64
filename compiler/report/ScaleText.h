// Prints the section "scale" of a report, a table of numbers of devices and strategies.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace lmc {

// `report` is explainJson()'s, with the list `scale` (docs/explain.md).
std::string scaleText(const nlohmann::json &report);

} // namespace lmc
