// Matchers find the places in a text that pre-tokenizers and normalizers change.
#pragma once

#include "corpus/tokenizer/unicode/Unicode.h"
#include "ground/support/Result.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// A range of bytes of a text: a match, or the gap between two matches.
struct Span {
  size_t begin, end;
  bool match;
};
// Adds the gap from the end of the last span to the byte `end`, unless the gap is empty.
inline void addGap(std::vector<Span> &spans, size_t end) {
  if (const size_t begin = spans.empty() ? 0 : spans.back().end; begin < end)
    spans.push_back({begin, end, false});
}
inline void addMatch(std::vector<Span> &spans, size_t begin, size_t end) {
  addGap(spans, begin);
  spans.push_back({begin, end, true});
}

// Sets `spans` to the matches in `text` (valid UTF-8) and the gaps around them, in order. No span
// is empty. Error: the search needs too much memory or time, or the expression matches the empty
// string, as a* does. Several threads may call a matcher at the same time.
using Matcher = std::function<Result<void>(std::string_view text, std::vector<Span> &spans)>;

// Compiles a regular expression with Oniguruma, as `tokenizers` does. An Error's message is
// one clause, such as "'\X' is not supported in a regular expression".
//
// `tokenizers` follows another version of Unicode than Oniguruma, so character classes (\p{L}, \s)
// come from the tables in unicode/. Other expressions that depend on the version are errors:
// [:alpha:], \p{Greek}, \X, and non-ASCII characters in a case-insensitive expression.
Result<Matcher> matchRegex(std::string_view pattern);
// Matches the text `wanted`, which must not be empty.
Matcher matchText(std::string wanted);
Matcher matchOneOf(const CodePoints &set);

// What a split does with the matches that it finds (SplitDelimiterBehavior of `tokenizers`).
enum class SplitBehavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

// Turns spans that cover a text into the spans of the words into which the text is split.
void applyBehavior(std::vector<Span> &spans, SplitBehavior behavior);

} // namespace lmc
