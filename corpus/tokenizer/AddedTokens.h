// Finds special tokens, and tokens that a user added, before a text is split into words.
#pragma once

#include "corpus/tokenizer/models/Trie.h"
#include "ground/support/Result.h"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

struct AddedToken {
  uint32_t id;
  std::string content;
  std::string pattern = {}; // the text to search for; it is not empty
  bool singleWord = false; // the token is found only where no word character is beside it
  bool leftStrip = false;  // the token includes the white space before it
  bool rightStrip = false; // the token includes the white space after it
  bool normalized = false; // the normalized text is searched for the token's normalized text
  bool special = false;
};

// A part of a text. It is an added token, or text outside of added tokens (then `id` is kNoId).
struct Part {
  size_t begin, end;
  uint32_t id;
};

// Finds tokens in a text from left to right. Of tokens that begin at one byte, takes the longest.
class TokenFinder {
public:
  // No two tokens may have the same pattern.
  explicit TokenFinder(std::vector<AddedToken> tokens = {});

  bool empty() const { return tokens.empty(); }
  // Divides the text into `parts`. A token whose id is in `asText` stays text, and the index of its
  // first byte is added to `spelled`.
  void find(std::string_view text, const IdSet &asText, std::vector<Part> &parts,
            std::vector<size_t> &spelled) const;
  // Returns the index of the longest token that begins `text`, or kNoId. Sets `end` to its length.
  uint32_t longest(std::string_view text, size_t &end) const;
  bool mayBegin(char byte) const { return begins[static_cast<uint8_t>(byte)]; }

private:
  std::vector<AddedToken> tokens;
  Trie trie;                      // the patterns, with the indices of their tokens
  std::array<bool, 256> begins{}; // first bytes of tokens
};

} // namespace lmc
