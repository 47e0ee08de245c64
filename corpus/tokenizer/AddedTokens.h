// Tokens that are found in the text before it is split: special ones, and others that a user added.
#pragma once

#include "corpus/tokenizer/models/Model.h"
#include "ground/support/Result.h"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// The flags are those of tokenizer.json.
struct AddedToken {
  uint32_t id;
  std::string content;
  bool singleWord = false; // only where no word character is beside it
  bool leftStrip = false;  // takes the white space before it, too
  bool rightStrip = false; // takes the white space after it, too
  bool normalized = false; // is found in the normalized text, in its own normalized form
  bool special = false;
};

// A part of a text: an added token, or text between them (kNoId).
struct Part {
  size_t begin, end;
  uint32_t id;
};

// Finds the leftmost and longest of some tokens.
class TokenFinder {
public:
  // `patterns[i]` is what tokens[i] looks like in the text; not empty.
  TokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string> &patterns);

  bool empty() const { return tokens.empty(); }
  // Puts parts that cover the text into `parts`. A token whose id is in `asText` stays text; the
  // begins of such places are put into `spelled`.
  void find(std::string_view text, const IdSet &asText, std::vector<Part> &parts,
            std::vector<size_t> &spelled) const;
  // Returns the index of the longest token at the front of `text`, or kNoId, and its end.
  uint32_t longest(std::string_view text, size_t &end) const;
  bool mayBegin(char byte) const { return begins[static_cast<uint8_t>(byte)]; }
  // Returns the id of the token of an index.
  uint32_t idOf(uint32_t index) const { return tokens[index].id; }

private:
  std::vector<AddedToken> tokens;
  struct Node {
    std::vector<std::pair<char, uint32_t>> children;
    uint32_t token = kNoId; // index of the token that ends here
  };
  std::vector<Node> nodes{1};
  std::array<bool, 256> begins{}; // first bytes of tokens
};

} // namespace lmc
