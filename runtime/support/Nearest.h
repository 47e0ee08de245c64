// "Did you mean": the known name that a mistyped one is closest to.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// The candidate with the smallest Levenshtein distance to `name`, the first of
// equals; empty when none is within a third of the name's length (at least 2).
std::string nearestName(std::string_view name, const std::vector<std::string> &candidates);

} // namespace lmc
