// "Did you mean ...?" by edit distance.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lmc::config {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into
// `b` (optimal string alignment).
unsigned editDistance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, if it is near enough to be a slip: at most a
// third of the word's length away.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string> &candidates);

// "; did you mean 'x'?", or nothing.
std::string suggestion(std::string_view word, const std::vector<std::string> &candidates);

} // namespace lmc::config
