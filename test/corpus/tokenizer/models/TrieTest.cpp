#include "corpus/tokenizer/models/Trie.h"

#include "test/Draws.h"

#include <map>
#include <random>

using namespace lmc;
using namespace lmc::test;

namespace {

// The value of `key`, or kNoId if it is not in the trie.
uint32_t valueOf(const Trie &trie, std::string_view key) {
  uint32_t node = 0;
  for (char byte : key)
    if ((node = trie.child(node, byte)) == 0)
      return kNoId;
  return trie.value(node);
}

TEST(Trie, HasNothingWithoutStrings) {
  Trie trie;
  trie.finish();
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(trie.child(0, static_cast<char>(byte)), 0u);
}

TEST(Trie, FindsDrawnStringsAndNoOthers) {
  std::mt19937 random(1);
  for (int64_t draws = drawCount(30), i = 0; i < draws; ++i) {
    // Few letters make long common beginnings, many make nodes with many children.
    const int letters = i % 3 == 0 ? 2 : i % 3 == 1 ? 20 : 256;
    const auto word = [&] {
      std::string text(1 + random() % 8, '\0');
      for (char &byte : text)
        byte = static_cast<char>(random() % letters);
      return text;
    };
    std::map<std::string, uint32_t> known;
    for (int n = random() % 3000; n >= 0; --n)
      known.emplace(word(), n);
    Trie trie;
    for (const auto &[key, value] : known)
      trie.add(key, value);
    trie.finish();
    for (const auto &[key, value] : known)
      ASSERT_EQ(valueOf(trie, key), value);
    for (int n = 0; n < 3000; ++n) {
      const std::string key = word();
      const auto found = known.find(key);
      ASSERT_EQ(valueOf(trie, key), found == known.end() ? kNoId : found->second);
    }
  }
}

} // namespace
