// SentencePiece's table of replacements ("precompiled_charsmap"): strings, and what each becomes.
//
// Format: a trie's size in bytes (uint32), the trie, and the replacements, each with a zero byte at
// its end. The trie is a double array of Darts-clone (github.com/s-yata/darts-clone). It maps a
// string to the index of its replacement's first byte.
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
  // The Error is a clause that says what is damaged. SentencePiece refuses such a table, too.
  static Result<Charsmap> parse(std::string_view blob);

  struct Match {
    size_t bytes; // of the text
    std::string_view replacement;
  };
  // Return the replacement of the shortest or longest string in the table that `text` begins with.
  std::optional<Match> shortest(std::string_view text) const { return find(text, true); }
  std::optional<Match> longest(std::string_view text) const { return find(text, false); }

  // Returns true if no string in the table equals the character `a` or begins with `a` and `b`.
  bool keeps(char a, char b) const;

private:
  // The trie's double array of nodes and values. parse() has checked that all children exist.
  std::vector<uint32_t> units;
  std::string replacements;

  std::optional<Match> find(std::string_view text, bool shortest) const;
};

} // namespace lmc
