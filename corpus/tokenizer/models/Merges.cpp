#include "corpus/tokenizer/models/Merges.h"

#include <algorithm>
#include <queue>

namespace lmc {

namespace {

Merge find(const MergeTable &merges, uint32_t left, uint32_t right, const IdSet *forbidden) {
  const Merge found = merges(left, right);
  return forbidden && contains(*forbidden, found.id) ? Merge() : found;
}

constexpr size_t kShort = 64;

// Merges at most kShort symbols. Searches all pairs before each merge.
void mergeShort(const MergeTable &merges, const IdSet *forbidden, uint32_t *symbols,
                size_t &count) {
  Merge pairs[kShort];
  for (size_t i = 0; i + 1 < count; ++i)
    pairs[i] = find(merges, symbols[i], symbols[i + 1], forbidden);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (pairs[i].rank < pairs[best].rank)
        best = i;
    if (pairs[best].rank == kNoRank)
      return;
    symbols[best] = pairs[best].id;
    std::copy(symbols + best + 2, symbols + count, symbols + best + 1);
    if (best + 2 < count)
      std::copy(pairs + best + 2, pairs + count - 1, pairs + best + 1);
    --count;
    if (best > 0)
      pairs[best - 1] = find(merges, symbols[best - 1], symbols[best], forbidden);
    if (best + 1 < count)
      pairs[best] = find(merges, symbols[best], symbols[best + 1], forbidden);
  }
}

// Merges any number of symbols, with a heap of pairs.
void mergeLong(const MergeTable &merges, const IdSet *forbidden, uint32_t *symbols, size_t &count) {
  constexpr size_t kEnd = SIZE_MAX;
  struct Symbol {
    uint32_t id;
    size_t previous, next;
  };
  std::vector<Symbol> list(count);
  for (size_t i = 0; i < count; ++i)
    list[i] = {symbols[i], i == 0 ? kEnd : i - 1, i + 1 == count ? kEnd : i + 1};
  struct Pair {
    uint32_t rank;
    size_t left;
    Merge merge; // the merge of `leftId` and `rightId`
    uint32_t leftId, rightId;
    bool operator<(const Pair &other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  std::priority_queue<Pair> queue;
  const auto push = [&](size_t left) {
    if (left == kEnd || list[left].next == kEnd)
      return;
    const uint32_t leftId = list[left].id, rightId = list[list[left].next].id;
    const Merge found = find(merges, leftId, rightId, forbidden);
    if (found.rank != kNoRank)
      queue.push({found.rank, left, found, leftId, rightId});
  };
  for (size_t i = 0; i + 1 < count; ++i)
    push(i);
  while (!queue.empty()) {
    const Pair pair = queue.top();
    queue.pop();
    Symbol &left = list[pair.left];
    // Skips a pair that no longer exists. After a merge, the right symbol has the id kNoId.
    if (left.id != pair.leftId || left.next == kEnd || list[left.next].id != pair.rightId)
      continue;
    Symbol &right = list[left.next];
    left.id = pair.merge.id;
    left.next = right.next;
    right.id = kNoId;
    if (left.next != kEnd)
      list[left.next].previous = pair.left;
    push(left.previous);
    push(pair.left);
  }
  size_t kept = 0;
  for (const Symbol &symbol : list)
    if (symbol.id != kNoId)
      symbols[kept++] = symbol.id;
  count = kept;
}

} // namespace

void mergeSymbols(const MergeTable &merges, const IdSet *forbidden, std::vector<uint32_t> &symbols,
                  size_t begin) {
  size_t count = symbols.size() - begin;
  if (count <= kShort)
    mergeShort(merges, forbidden, symbols.data() + begin, count);
  else
    mergeLong(merges, forbidden, symbols.data() + begin, count);
  symbols.resize(begin + count);
}

// Calls see(at) for each space mark in `text` that follows a character other than a space mark.
template <typename See> static void eachInnerMark(std::string_view text, See see) {
  for (size_t at = text.find(kSpaceMark, 1); at != text.npos; at = text.find(kSpaceMark, at + 1))
    if (!text.substr(0, at).ends_with(kSpaceMark))
      see(at);
}

bool hasInnerMark(std::string_view piece) {
  bool found = false;
  eachInnerMark(piece, [&](size_t) { found = true; });
  return found;
}

void cutBeforeMarks(std::string_view text, std::vector<std::string_view> &parts) {
  size_t begin = 0;
  eachInnerMark(text, [&](size_t at) {
    parts.push_back(text.substr(begin, at - begin));
    begin = at;
  });
  parts.push_back(text.substr(begin));
}

} // namespace lmc
