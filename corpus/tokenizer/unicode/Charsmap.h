// SentencePiece's table of replacements ("precompiled_charsmap"): strings, and what each becomes.
//
// The format: uint32 bytes of a trie, the trie, the replacements with a zero byte after each. The
// trie is a double array of Darts-clone (github.com/s-yata/darts-clone), whose values are where a
// replacement begins.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

class Charsmap {
public:
  // Error: one clause, if the table is damaged. SentencePiece refuses the same tries.
  static Result<Charsmap> parse(std::string_view blob);

  struct Match {
    size_t bytes; // of the text
    std::string_view replacement;
  };
  // Returns the shortest, or the longest, string of the table that `text` begins with.
  std::optional<Match> shortest(std::string_view text) const { return find(text, true); }
  std::optional<Match> longest(std::string_view text) const { return find(text, false); }

  // Returns true if the table has neither `a` nor a string that begins with `a` and `b`.
  bool keeps(char a, char b) const;

private:
  // Each unit is a value, or has its 256 possible children within `units`.
  std::vector<uint32_t> units;
  std::string replacements;

  std::optional<Match> find(std::string_view text, bool shortest) const;
};

} // namespace lmc
