#include "runtime/data/Separators.h"

#include <fmt/format.h>

namespace lmc {

void SeparatorCount::add(uint64_t begin, std::span<const int32_t> tokens) {
  if (wanted < 0 || tokens.empty())
    return;
  bool before = begin == next && latestIsOne;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool isOne = tokens[i] == wanted;
    if (isOne && before && foundDoubled++ == 0)
      first = begin + i;
    found += isOne;
    before = isOne;
  }
  read += tokens.size();
  next = begin + tokens.size();
  latestIsOne = before;
}

std::string SeparatorCount::faultOf(const std::string &path) const {
  if (foundDoubled == 0)
    return "";
  return fmt::format("{}: {} of {} tokens that end documents (id {}) stand directly behind another "
                     "one, the first at token {}, in {} tokens: a model would learn that documents "
                     "end twice; make the file with one between two documents, as lmc-data pack "
                     "does, and see: lmc-data inspect --eod={}",
                     path, foundDoubled, found, wanted, first, read, wanted);
}

} // namespace lmc
