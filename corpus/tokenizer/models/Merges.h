// The merges of byte pair encoding.
#pragma once

#include "corpus/tokenizer/models/Model.h"

#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lmc {

constexpr uint32_t kNoRank = UINT32_MAX;

struct Merge {
  uint32_t rank = kNoRank; // the merge with the lowest rank is made first
  uint32_t id = 0;         // id of the merged piece
};

// A hash table from pairs of ids to merges, with open addressing.
class MergeTable {
public:
  explicit MergeTable(size_t merges) {
    size_t size = 16;
    while (size < 2 * merges)
      size *= 2;
    slots.resize(size);
    shift = 64 - std::countr_zero(size);
  }
  // Adds the merge of a pair, or replaces the pair's merge.
  void add(uint32_t left, uint32_t right, Merge merge) {
    Slot &slot = slots[find(key(left, right))];
    slot = {key(left, right), merge};
  }
  Merge operator()(uint32_t left, uint32_t right) const {
    return slots[find(key(left, right))].merge;
  }

private:
  struct Slot {
    uint64_t key = UINT64_MAX;
    Merge merge;
  };
  std::vector<Slot> slots;
  int shift;

  static uint64_t key(uint32_t left, uint32_t right) { return uint64_t(left) << 32 | right; }
  size_t find(uint64_t key) const {
    // This is Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4).
    size_t at = (key * 0x9e3779b97f4a7c15u) >> shift;
    while (slots[at].key != key && slots[at].key != UINT64_MAX)
      at = (at + 1) & (slots.size() - 1);
    return at;
  }
};

// Merges the symbols from index `begin` on until no pair can be merged. Each merge takes the pair
// with the lowest rank (the leftmost if equal). No merge makes an id in `forbidden` (may be null).
void mergeSymbols(const MergeTable &merges, const IdSet *forbidden, std::vector<uint32_t> &symbols,
                  size_t begin);

// The character that SentencePiece writes for a space.
inline constexpr std::string_view kSpaceMark = "\u2581";
// Returns true if `piece` has an inner mark: a space mark after a character that is no space mark.
// If no piece of a vocabulary has an inner mark, no merge joins an inner mark of a text with the
// character before it. So the text can be cut before each of its inner marks.
bool hasInnerMark(std::string_view piece);
// Cuts `text` before each inner mark (see hasInnerMark()).
void cutBeforeMarks(std::string_view text, std::vector<std::string_view> &parts);

} // namespace lmc
