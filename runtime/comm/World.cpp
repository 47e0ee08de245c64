#include "runtime/comm/World.h"

#include <fmt/format.h>

namespace lmc {

std::string World::namesOf(const std::vector<int> &ranks) const {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::string host = hostOf(ranks[i]);
    text += fmt::format("{} {}", i == 0 ? "" : ",", ranks[i]);
    if (!host.empty() && (i + 1 == ranks.size() || hostOf(ranks[i + 1]) != host))
      text += fmt::format(" (host {})", host);
  }
  return text;
}

} // namespace lmc
