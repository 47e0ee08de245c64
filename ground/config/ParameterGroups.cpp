#include "ground/config/ParameterGroups.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

namespace lmc {

// Returns the edit distance between a pattern and a name: the minimum number of characters to
// insert, delete or replace. `*` matches any run of characters, and `?` any single character.
static size_t distance(std::string_view pattern, std::string_view parameter) {
  // row[j] is the distance of the pattern read so far from the first j characters of `parameter`.
  std::vector<size_t> row(parameter.size() + 1);
  for (size_t j = 0; j < row.size(); ++j)
    row[j] = j;
  for (const char c : pattern) {
    size_t diagonal = row[0];
    if (c != '*')
      ++row[0];
    for (size_t j = 1; j < row.size(); ++j) {
      const size_t above = row[j];
      if (c == '*')
        row[j] = std::min(above, row[j - 1]);
      else
        row[j] =
            std::min({diagonal + (c != '?' && c != parameter[j - 1]), above + 1, row[j - 1] + 1});
      diagonal = above;
    }
  }
  return row.back();
}

bool matchesPattern(std::string_view pattern, std::string_view parameter) {
  return distance(pattern, parameter) == 0;
}

std::vector<std::string> nearestParameters(std::string_view pattern,
                                           const std::vector<std::string> &parameters,
                                           size_t most) {
  std::vector<std::pair<size_t, std::string>> order;
  std::set<std::string> known;
  for (const std::string &parameter : parameters) {
    std::string withoutNumbers = parameter;
    std::erase_if(withoutNumbers, [](unsigned char c) { return std::isdigit(c); });
    if (known.insert(withoutNumbers).second)
      order.emplace_back(distance(pattern, parameter), parameter);
  }
  std::ranges::stable_sort(order, {}, &std::pair<size_t, std::string>::first);
  std::vector<std::string> nearest;
  for (const auto &[steps, parameter] : order)
    if (nearest.size() < most)
      nearest.push_back(parameter);
  return nearest;
}

const ParameterGroup *groupOf(const OptimizerConfig &optimizer, std::string_view parameter) {
  for (const auto &[name, group] : optimizer.groups)
    for (const std::string &pattern : group.parameters)
      if (matchesPattern(pattern, parameter))
        return &group;
  return nullptr;
}

} // namespace lmc
