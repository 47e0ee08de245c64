// Finds the known name that is closest to a mistyped one, for "did you mean 'x'?".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// Returns the number of insertions, deletions, replacements and swaps of neighbouring letters that
// turn `a` into `b` (optimal string alignment distance).
size_t editDistance(std::string_view a, std::string_view b);

// Returns the first of the candidates with the smallest edit distance to `name`. Returns "" if this
// distance is larger than a third of the length of `name`, rounded up.
std::string nearestName(std::string_view name, const std::vector<std::string> &candidates);

// Returns "; did you mean 'x'?" with x = nearestName(name, candidates), or "" if x is "".
std::string suggestion(std::string_view name, const std::vector<std::string> &candidates);

} // namespace lmc
