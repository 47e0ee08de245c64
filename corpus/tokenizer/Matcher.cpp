#include "corpus/tokenizer/Matcher.h"

#include "corpus/tokenizer/unicode/Utf8.h"

#include <algorithm>

namespace lmc {

Matcher matchText(std::string wanted) {
  return [wanted = std::move(wanted)](std::string_view text, std::vector<Span> &spans) {
    spans.clear();
    for (size_t at = 0; (at = text.find(wanted, at)) != text.npos; at += wanted.size())
      addMatch(spans, at, at + wanted.size());
    addGap(spans, text.size());
    return Result<void>();
  };
}

Matcher matchOneOf(const CodePoints &set) {
  std::vector<bool> members(0x110000);
  const std::vector<uint32_t> &borders = set.borders();
  for (size_t i = 0; i < borders.size(); i += 2)
    std::fill(members.begin() + borders[i], members.begin() + borders[i + 1], true);
  return [members = std::move(members)](std::string_view text, std::vector<Span> &spans) {
    spans.clear();
    for (size_t begin = 0, at = 0; at < text.size(); begin = at)
      if (members[readUtf8(text, at)])
        addMatch(spans, begin, at);
    addGap(spans, text.size());
    return Result<void>();
  };
}

void applyBehavior(std::vector<Span> &spans, SplitBehavior behavior) {
  // Joins span B to the span A before it if join(B.match, A.match) is true.
  const auto joinWithLast = [](auto first, auto last, auto join) {
    auto out = first;
    bool previousMatch = false;
    bool any = false;
    for (auto it = first; it != last; ++it) {
      const Span span = *it;
      if (any && join(span.match, previousMatch)) {
        auto &kept = *(out - 1);
        kept.begin = std::min(kept.begin, span.begin);
        kept.end = std::max(kept.end, span.end);
      } else {
        *out++ = span;
        any = true;
      }
      previousMatch = span.match;
    }
    return out;
  };
  const auto startsMatch = [](bool match, bool previous) { return match && !previous; };
  switch (behavior) {
  case SplitBehavior::Isolated:
    break;
  case SplitBehavior::Removed:
    std::erase_if(spans, [](const Span &span) { return span.match; });
    break;
  case SplitBehavior::Contiguous:
    spans.erase(joinWithLast(spans.begin(), spans.end(),
                             [](bool match, bool previous) { return match == previous; }),
                spans.end());
    break;
  case SplitBehavior::MergedWithPrevious:
    spans.erase(joinWithLast(spans.begin(), spans.end(), startsMatch), spans.end());
    break;
  case SplitBehavior::MergedWithNext: {
    auto kept = joinWithLast(spans.rbegin(), spans.rend(), startsMatch);
    spans.erase(spans.begin(), kept.base());
    break;
  }
  }
}

} // namespace lmc
