// "Did you mean": finds the known name that is closest to a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal
// string alignment).
size_t editDistance(std::string_view a, std::string_view b);

// Returns the candidate with the smallest distance to `name`, the first of equals; "" if no
// distance is at most a third of the name's length, rounded up.
std::string nearestName(std::string_view name, const std::vector<std::string> &candidates);

// Returns "; did you mean 'x'?" with the nearest candidate, or "".
std::string suggestion(std::string_view name, const std::vector<std::string> &candidates);

} // namespace lmc
