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
  // Replaces `spans` with those of `text`, valid UTF-8: matches and the gaps between them, from its
  // begin to its end. No span is empty. Error: the search needs too much memory or time.
  virtual Result<void> search(std::string_view text, std::vector<Span> &spans) const = 0;

  // Compiles a regular expression with the meaning that Oniguruma gives it (Ruby's syntax). Error:
  // one clause ("'\\b' is not supported") if the expression has a feature that this class does not
  // have, or can match the empty string.
  //
  // PCRE2 does the search, but its classes (\p{L}, \s) belong to another version of Unicode than
  // Oniguruma's. Therefore PCRE2 sees no characters, only their kinds, one byte for each character:
  // two characters have the same kind if each class, set and literal of the expression has both or
  // neither of them. Error: an expression with more than 256 kinds.
  static Result<std::unique_ptr<Matcher>> regex(std::string_view pattern);
  // Matches `text`, which must not be empty.
  static std::unique_ptr<Matcher> literal(std::string text);
  // Matches one character of the set.
  static std::unique_ptr<Matcher> oneOf(const CodePoints &set);
};

// What becomes of the matches when a text is split at them (tokenizers' SplitDelimiterBehavior).
enum class SplitBehavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

// Turns spans that cover a text into the pieces it is split into. Removed spans are left out.
void applyBehavior(std::vector<Span> &spans, SplitBehavior behavior);

} // namespace lmc
