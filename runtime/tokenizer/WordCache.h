// Remembers the ids of words, so that a word that comes again is not encoded again.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

class WordCache {
public:
  static constexpr size_t kLongestWord = 255; // bytes; longer words are not kept

  WordCache() : slots(kSlots) {}

  // Appends the ids of `word` and returns true if it is known.
  bool find(std::string_view word, std::vector<uint32_t> &ids) {
    const uint64_t hash = XXH3_64bits(word.data(), word.size());
    for (size_t at = hash & (kSlots - 1); slots[at].used; at = (at + 1) & (kSlots - 1)) {
      const Slot &slot = slots[at];
      if (slot.hash != static_cast<uint32_t>(hash >> 32) || slot.bytes != word.size() ||
          std::memcmp(text.data() + slot.text, word.data(), word.size()) != 0)
        continue;
      ids.insert(ids.end(), tokens.begin() + slot.ids, tokens.begin() + slot.ids + slot.count);
      return true;
    }
    return false;
  }
  // Adds a word that find() does not know. Forgets all words when there are too many.
  void add(std::string_view word, const uint32_t *ids, size_t count) {
    if (word.size() > kLongestWord || count > UINT16_MAX)
      return;
    if (words == kSlots / 2) {
      slots.assign(kSlots, {});
      text.clear();
      tokens.clear();
      words = 0;
    }
    const uint64_t hash = XXH3_64bits(word.data(), word.size());
    size_t at = hash & (kSlots - 1);
    while (slots[at].used)
      at = (at + 1) & (kSlots - 1);
    slots[at] = {static_cast<uint32_t>(hash >> 32),    static_cast<uint32_t>(text.size()),
                 static_cast<uint32_t>(tokens.size()), static_cast<uint16_t>(count),
                 static_cast<uint8_t>(word.size()),    true};
    text += word;
    tokens.insert(tokens.end(), ids, ids + count);
    ++words;
  }

private:
  static constexpr size_t kSlots = 1 << 18;
  struct Slot {
    uint32_t hash = 0;
    uint32_t text = 0; // where the word begins in `text`
    uint32_t ids = 0;  // where its ids begin in `tokens`
    uint16_t count = 0;
    uint8_t bytes = 0;
    bool used = false;
  };
  std::vector<Slot> slots;
  std::string text;
  std::vector<uint32_t> tokens;
  size_t words = 0;
};

} // namespace lmc
