#include "runtime/support/Nearest.h"

#include <algorithm>
#include <numeric>

namespace lmc {

static size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

std::string nearestName(std::string_view name, const std::vector<std::string> &candidates) {
  size_t best = std::max<size_t>(2, name.size() / 3) + 1;
  std::string nearest;
  for (const std::string &candidate : candidates)
    if (size_t distance = editDistance(name, candidate); distance < best) {
      best = distance;
      nearest = candidate;
    }
  return nearest;
}

} // namespace lmc
