// Remembers the ids of words, so that a word is not encoded again each time it occurs.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace lmc {

// A hash table with open addressing. Slots point into an array of 32-bit numbers, to entries: word
// length in bytes, number of ids, the caller's float `note`, the word (zero-padded), and the ids.
class WordCache {
public:
  struct Known {
    std::span<const uint32_t> ids; // valid until the next add()
    float note;                    // the number that the caller gave to add()
  };
  static constexpr size_t kLongestWord = 255; // bytes; longer words are not kept

  WordCache() : slots(kSlots) {}

  static uint64_t hashOf(std::string_view word) { return XXH3_64bits(word.data(), word.size()); }

  std::optional<Known> find(std::string_view word) const { return find(word, hashOf(word)); }
  std::optional<Known> find(std::string_view word, uint64_t hash) const {
    for (size_t at = hash & (kSlots - 1); slots[at].entry != 0; at = (at + 1) & (kSlots - 1)) {
      const uint32_t *entry = entries.data() + slots[at].entry;
      if (slots[at].hash != static_cast<uint32_t>(hash >> 32) || entry[0] != word.size() ||
          std::memcmp(entry + kHead, word.data(), word.size()) != 0)
        continue;
      Known known{{entry + kHead + numbers(word), entry[1]}, 0};
      std::memcpy(&known.note, entry + 2, sizeof(known.note));
      return known;
    }
    return std::nullopt;
  }

  // Adds a new word if it is not too long. If the cache is full, first forgets all words.
  void add(std::string_view word, std::span<const uint32_t> ids, float note = 0) {
    if (word.size() > kLongestWord || ids.size() > UINT16_MAX)
      return;
    if (words == kSlots / 2) {
      slots.assign(kSlots, {});
      entries.resize(1);
      words = 0;
    }
    const uint64_t hash = hashOf(word);
    size_t at = hash & (kSlots - 1);
    while (slots[at].entry != 0)
      at = (at + 1) & (kSlots - 1);
    const size_t begin = entries.size();
    slots[at] = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(begin)};
    entries.resize(begin + kHead + numbers(word));
    entries[begin] = static_cast<uint32_t>(word.size());
    entries[begin + 1] = static_cast<uint32_t>(ids.size());
    std::memcpy(&entries[begin + 2], &note, sizeof(note));
    std::memcpy(entries.data() + begin + kHead, word.data(), word.size());
    entries.insert(entries.end(), ids.begin(), ids.end());
    ++words;
  }

  // Prefetch what find() reads. loadEntry() needs the slot, so call it some time after loadSlot().
  void loadSlot(uint64_t hash) const { __builtin_prefetch(&slots[hash & (kSlots - 1)]); }
  void loadEntry(uint64_t hash) const {
    __builtin_prefetch(entries.data() + slots[hash & (kSlots - 1)].entry);
  }

private:
  static constexpr size_t kSlots = 1 << 17;
  static constexpr size_t kHead = 3; // 32-bit numbers of an entry before its word
  struct Slot {
    uint32_t hash = 0;  // the upper half
    uint32_t entry = 0; // index in `entries`; 0: the slot is free
  };
  std::vector<Slot> slots;
  std::vector<uint32_t> entries{0};
  size_t words = 0;

  // Returns the number of 32-bit numbers that a word's bytes fill.
  static size_t numbers(std::string_view word) { return (word.size() + 3) / 4; }
};

} // namespace lmc
