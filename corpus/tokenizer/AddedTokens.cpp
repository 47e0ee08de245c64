#include "corpus/tokenizer/AddedTokens.h"

#include "corpus/tokenizer/unicode/Unicode.h"
#include "corpus/tokenizer/unicode/Utf8.h"

#include <algorithm>

namespace lmc {

TokenFinder::TokenFinder(std::vector<AddedToken> given, const std::vector<std::string> &patterns)
    : tokens(std::move(given)) {
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    uint32_t node = 0;
    for (char byte : patterns[i]) {
      auto child = std::find_if(nodes[node].children.begin(), nodes[node].children.end(),
                                [&](const auto &edge) { return edge.first == byte; });
      if (child != nodes[node].children.end()) {
        node = child->second;
        continue;
      }
      const auto next = static_cast<uint32_t>(nodes.size());
      nodes[node].children.emplace_back(byte, next);
      nodes.emplace_back();
      node = next;
    }
    nodes[node].token = i;
    begins[static_cast<uint8_t>(patterns[i][0])] = true;
  }
}

uint32_t TokenFinder::longest(std::string_view text, size_t &end) const {
  uint32_t node = 0, found = kNoId;
  if (!begins[static_cast<uint8_t>(text[0])])
    return kNoId;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto &children = nodes[node].children;
    auto child = std::find_if(children.begin(), children.end(),
                              [&](const auto &edge) { return edge.first == text[at]; });
    if (child == children.end())
      break;
    node = child->second;
    if (nodes[node].token != kNoId) {
      found = nodes[node].token;
      end = at + 1;
    }
  }
  return found;
}

static bool isWord(char32_t c) { return wordCharacters().contains(c); }

void TokenFinder::find(std::string_view text, const IdSet &asText, std::vector<Part> &parts,
                       std::vector<size_t> &spelled) const {
  parts.clear();
  size_t done = 0; // `parts` covers the text before this byte
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
    if (token.leftStrip) {
      while (begin > 0) {
        size_t left = begin;
        stepBack(text, left);
        size_t next = left;
        if (!isSpace(readUtf8(text, next)))
          break;
        begin = left;
      }
      begin = std::max(begin, done); // this white space may belong to the token before
    }
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
