// Properties of code points as in PyPI's `tokenizers`. Parts of `tokenizers` use different versions
// of Unicode, so a property can have two tables (make-unicode-tables.py).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

class CodePoints {
public:
  // `flips` has, in ascending order, the code points at which membership in the set changes.
  explicit CodePoints(std::vector<uint32_t> flips) : flips(std::move(flips)) {}

  bool contains(char32_t c) const;
  const std::vector<uint32_t> &borders() const { return flips; }

private:
  std::vector<uint32_t> flips;
};

// Oniguruma's classes, which the regular expressions of Split and Replace use.
namespace regex {
// "\s" and "[\w]".
const CodePoints &space();
const CodePoints &word();
// Returns the set of each \p{NAME}: categories ("Lu"), groups of categories ("L"), and "Han".
std::map<std::string_view, CodePoints> properties();
} // namespace regex

// Sets that pre-tokenizers, normalizers and added tokens use without a regular expression.
const CodePoints &wordCharacters();  // \w of the crate regex
const CodePoints &spaceCharacters(); // \s of the crate regex, and char::is_whitespace
inline bool isSpace(char32_t c) { return spaceCharacters().contains(c); }
// Returns the index at which the white space before `end` begins. The index is at least `begin`.
size_t spaceBegin(std::string_view text, size_t begin, size_t end);
const CodePoints &numericCharacters();     // char::is_numeric
const CodePoints &punctuationCharacters(); // the characters at which Punctuation splits
const CodePoints &markCharacters();        // what StripAccents removes

// Returns the end of the grapheme cluster that begins at byte `begin` (Unicode Standard Annex 29).
// If the cluster has 6 bytes or more, the end may be too early.
size_t clusterEnd(std::string_view text, size_t begin);

void appendLowercase(std::string &text, char32_t c);

enum class NormalForm { NFC, NFD, NFKC, NFKD };
// Returns `text` (valid UTF-8) in a normal form (Unicode Standard Annex 15).
std::string normalForm(std::string_view text, NormalForm form);

} // namespace lmc
