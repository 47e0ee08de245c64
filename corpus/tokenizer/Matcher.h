// What pre-tokenizers and normalizers search for in a text: a regular expression, a set of
// characters or a string.
#pragma once

#include "corpus/tokenizer/unicode/Unicode.h"
#include "ground/support/Result.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// A range of bytes of a text, which a matcher found or which lies between two such ranges.
struct Span {
  size_t begin, end;
  bool match;
};
// Adds the span between two matches, unless it is empty.
inline void addGap(std::vector<Span> &spans, size_t begin, size_t end) {
  if (begin < end)
    spans.push_back({begin, end, false});
}

class Matcher {
public:
  virtual ~Matcher() = default;
  // Replaces `spans` with spans that cover `text`, valid UTF-8, in order: the matches and the gaps
  // between them. No span is empty. Error: the search needs too much memory or time, or the
  // expression matches the empty string, as a* does.
  virtual Result<void> search(std::string_view text, std::vector<Span> &spans) const = 0;

  // Compiles a regular expression for Oniguruma, the library with which `tokenizers` searches.
  // Error: one clause ("'\X' is not supported in a regular expression") if the library refuses the
  // expression, or if it depends on the library's version of Unicode.
  //
  // That version differs from the one of `tokenizers`. Therefore Oniguruma reads its classes
  // (\p{L}, \s) from the tables of unicode/. Refused are classes without a table ([:alpha:],
  // \p{Greek}), the borders of grapheme clusters (\X), and all but ASCII characters where case does
  // not matter.
  static Result<std::unique_ptr<Matcher>> regex(std::string_view pattern);
  // Matches `text`, which must not be empty.
  static std::unique_ptr<Matcher> literal(std::string text);
  // Matches one character of the set.
  static std::unique_ptr<Matcher> oneOf(const CodePoints &set);
};

// What happens to the matches when a text is split at them (tokenizers' SplitDelimiterBehavior).
enum class SplitBehavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

// Turns spans that cover a text into the pieces of the text, without removed spans.
void applyBehavior(std::vector<Span> &spans, SplitBehavior behavior);

} // namespace lmc
