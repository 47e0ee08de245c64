// "Did you mean": finds the known name that is closest to a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal
// string alignment).
size_t editDistance(std::string_view a, std::string_view b);

// The candidate with the smallest distance to `name`, the first of equals; empty when none is
// within a third of the name's length, rounded up.
std::string nearestName(std::string_view name, const std::vector<std::string> &candidates);

// "; did you mean 'x'?" with the nearest of the candidates, or "".
std::string suggestion(std::string_view name, const std::vector<std::string> &candidates);

} // namespace lmc
