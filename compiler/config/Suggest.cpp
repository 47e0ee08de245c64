#include "compiler/config/Suggest.h"

#include <fmt/format.h>

#include <algorithm>

namespace lmc::config {

unsigned editDistance(std::string_view a, std::string_view b) {
  // distance[i][j] is the distance of the first i letters of a to the first j letters of b.
  std::vector<std::vector<unsigned>> distance(a.size() + 1, std::vector<unsigned>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    distance[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j)
    distance[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      unsigned &best = distance[i][j];
      best = std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1,
                       distance[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        best = std::min(best, distance[i - 2][j - 2] + 1);
    }
  return distance[a.size()][b.size()];
}

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string> &candidates) {
  // The limit is a third of the word, rounded up, but less than the whole word: 'x' is not similar
  // to 'y'.
  const size_t limit = word.empty() ? 0 : std::min((word.size() + 2) / 3, word.size() - 1);
  std::optional<std::string> best;
  size_t bestDistance = limit + 1;
  for (const std::string &candidate : candidates) {
    // Skips candidates of very different length, so that long words stay cheap.
    if (candidate.size() > word.size() + limit || word.size() > candidate.size() + limit)
      continue;
    const size_t distance = editDistance(word, candidate);
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

std::string suggestion(std::string_view word, const std::vector<std::string> &candidates) {
  const std::optional<std::string> best = nearest(word, candidates);
  return best ? fmt::format("; did you mean '{}'?", *best) : "";
}

} // namespace lmc::config
