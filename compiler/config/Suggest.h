// "Did you mean ...?" by edit distance.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lmc::config {

// Returns the number of insertions, deletions, replacements and swaps of neighbours that turn `a`
// into `b` (optimal string alignment).
unsigned editDistance(std::string_view a, std::string_view b);

// Returns the candidate nearest to `word` if their distance is at most a third of the word's
// length.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string> &candidates);

// Returns "; did you mean 'x'?", or "".
std::string suggestion(std::string_view word, const std::vector<std::string> &candidates);

} // namespace lmc::config
