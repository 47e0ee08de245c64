#include "corpus/tokenizer/AddedTokens.h"

#include "corpus/tokenizer/unicode/Unicode.h"
#include "corpus/tokenizer/unicode/Utf8.h"

#include <algorithm>

namespace lmc {

TokenFinder::TokenFinder(std::vector<AddedToken> given) : tokens(std::move(given)) {
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    trie.add(tokens[i].pattern, i);
    begins[static_cast<uint8_t>(tokens[i].pattern[0])] = true;
  }
  trie.finish();
}

uint32_t TokenFinder::longest(std::string_view text, size_t &end) const {
  uint32_t node = 0, found = kNoId;
  for (size_t at = 0; at < text.size() && (node = trie.child(node, text[at])) != 0; ++at)
    if (trie.value(node) != kNoId) {
      found = trie.value(node);
      end = at + 1;
    }
  return found;
}

static bool isWord(char32_t c) { return wordCharacters().contains(c); }

void TokenFinder::find(std::string_view text, const IdSet &asText, std::vector<Part> &parts,
                       std::vector<size_t> &spelled) const {
  parts.clear();
  size_t done = 0; // `parts` covers the first `done` bytes of the text
  for (size_t at = 0; at < text.size();) {
    if (!mayBegin(text[at])) {
      ++at;
      continue;
    }
    size_t length;
    const uint32_t index = longest(text.substr(at), length);
    if (index == kNoId) {
      ++at;
      continue;
    }
    const AddedToken &token = tokens[index];
    size_t begin = at, end = at + length;
    at = end;
    if (contains(asText, token.id)) {
      spelled.push_back(begin);
      continue;
    }
    if (token.singleWord) {
      size_t left = begin, right = end;
      if (begin > 0)
        stepBack(text, left);
      if ((begin > 0 && isWord(readUtf8(text, left))) ||
          (end < text.size() && isWord(readUtf8(text, right))))
        continue;
    }
    if (token.leftStrip) // strips no white space that belongs to the previous token
      begin = std::max(spaceBegin(text, 0, begin), done);
    if (token.rightStrip)
      for (size_t next = end; next < text.size() && isSpace(readUtf8(text, next));)
        end = next;
    if (done < begin)
      parts.push_back({done, begin, kNoId});
    parts.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size())
    parts.push_back({done, text.size(), kNoId});
}

} // namespace lmc
