// "Did you mean": finds the known name that is closest to a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// Returns the candidate with the smallest Levenshtein distance to `name`, the first of equals;
// returns "" if no distance is at most a third of the name's length (or 2 for short names).
std::string nearestName(std::string_view name, const std::vector<std::string> &candidates);

} // namespace lmc
