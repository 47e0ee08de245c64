// SentencePiece's table of replacements ("precompiled_charsmap"): strings, and what each becomes.
//
// The format: the bytes of a trie (uint32), the trie, and the replacements with a zero byte after
// each. The trie is a double array of Darts-clone (github.com/s-yata/darts-clone). Its value for a
// string is the byte at which the replacement begins.
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
  // Error: one clause; the table is damaged. SentencePiece refuses the same tries.
  static Result<Charsmap> parse(std::string_view blob);

  struct Match {
    size_t bytes; // of the text
    std::string_view replacement;
  };
  // Return the shortest or longest string of the table with which `text` begins.
  std::optional<Match> shortest(std::string_view text) const { return find(text, true); }
  std::optional<Match> longest(std::string_view text) const { return find(text, false); }

  // Returns true if the table has neither the string "a" nor a string that begins with "ab".
  bool keeps(char a, char b) const;

private:
  // Each unit is a value, or a node whose 256 possible children all lie in `units`.
  std::vector<uint32_t> units;
  std::string replacements;

  std::optional<Match> find(std::string_view text, bool shortest) const;
};

} // namespace lmc
