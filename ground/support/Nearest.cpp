#include "ground/support/Nearest.h"

#include <fmt/format.h>

#include <algorithm>

namespace lmc {

size_t editDistance(std::string_view a, std::string_view b) {
  // distance[i][j] is the edit distance from the first i letters of a to the first j letters of b.
  std::vector<std::vector<size_t>> distance(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    distance[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j)
    distance[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t &best = distance[i][j];
      best = std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1,
                       distance[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        best = std::min(best, distance[i - 2][j - 2] + 1);
    }
  return distance[a.size()][b.size()];
}

std::string nearestName(std::string_view name, const std::vector<std::string> &candidates) {
  // The limit is less than the length of `name`, so that "a" does not count as close to "b".
  const size_t limit = name.empty() ? 0 : std::min((name.size() + 2) / 3, name.size() - 1);
  std::string nearest;
  size_t best = limit + 1;
  for (const std::string &candidate : candidates) {
    // The edit distance is at least the difference between the lengths of the two names.
    if (candidate.size() > name.size() + limit || name.size() > candidate.size() + limit)
      continue;
    if (size_t distance = editDistance(name, candidate); distance < best) {
      nearest = candidate;
      best = distance;
    }
  }
  return nearest;
}

std::string suggestion(std::string_view name, const std::vector<std::string> &candidates) {
  const std::string nearest = nearestName(name, candidates);
  return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
}

} // namespace lmc
