// Prints the section "hints" of a report: what would help a job that does not fit.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace lmc {

// `hints` is a list (docs/explain.md). Returns lines, each ending with a newline; "" for an empty
// list.
std::string hintsText(const nlohmann::json &hints);

} // namespace lmc
