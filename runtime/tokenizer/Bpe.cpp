#include "runtime/tokenizer/Model.h"
#include "runtime/tokenizer/Utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <queue>

namespace lmc {

const std::vector<std::string> &byteCharacters() {
  static const auto map = [] {
    std::vector<std::string> characters(256);
    char32_t next = 256; // bytes that no printable Latin-1 character has get the next ones
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      appendUtf8(characters[byte], printable ? char32_t(byte) : next++);
    }
    return characters;
  }();
  return map;
}

std::optional<std::string> bytesOfCharacters(std::string_view text) {
  static const auto bytes = [] {
    std::array<int, 0x144> map;
    map.fill(-1);
    for (int byte = 0; byte < 256; ++byte) {
      size_t at = 0;
      map[readUtf8(byteCharacters()[byte], at)] = byte;
    }
    return map;
  }();
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = readUtf8(text, at);
    if (c >= bytes.size() || bytes[c] < 0)
      return std::nullopt;
    result += static_cast<char>(bytes[c]);
  }
  return result;
}

namespace {

constexpr uint32_t kNoRank = UINT32_MAX;

struct Merge {
  uint32_t rank = kNoRank; // merges of lower ranks come first
  uint32_t id = 0;         // of the merged piece
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
  // A pair that is added again gets the later rank.
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
    // Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4).
    size_t at = (key * 0x9e3779b97f4a7c15u) >> shift;
    while (slots[at].key != key && slots[at].key != UINT64_MAX)
      at = (at + 1) & (slots.size() - 1);
    return at;
  }
};

class Bpe : public Model {
public:
  explicit Bpe(BpeOptions given) : options(std::move(given)), merges(options.merges.size()) {}

  Result<void> initialize();
  Result<void> encode(std::string_view word, const IdSet *forbidden,
                      std::vector<uint32_t> &ids) const override;
  const Vocabulary &vocabulary() const override { return options.vocabulary; }
  size_t size() const override { return options.vocabulary.ids.size(); }
  void cut(std::string_view text, std::vector<std::string_view> &parts) const override;

private:
  BpeOptions options;
  MergeTable merges;
  uint32_t unknownId = kNoId;
  std::array<uint32_t, 256> byteIds;      // of byte-level pieces of one byte
  std::array<uint32_t, 256> fallbackIds;  // of "<0xHH>"
  StringMap<uint32_t> words;              // pieces as bytes, if they are looked up (ignoreMerges)
  // True if no piece has U+2581 behind another character than U+2581, so that a text can be cut
  // before each U+2581 that follows another character.
  bool cutsAtSpaces = false;

  Result<void> appendCharacters(std::string_view word, std::vector<uint32_t> &symbols) const;
  void mergeShort(uint32_t *symbols, size_t &count, const IdSet *forbidden) const;
  void mergeLong(uint32_t *symbols, size_t &count, const IdSet *forbidden) const;
  Merge merge(uint32_t left, uint32_t right, const IdSet *forbidden) const {
    Merge found = merges(left, right);
    return forbidden && contains(*forbidden, found.id) ? Merge() : found;
  }
};

constexpr std::string_view kSpaceMark = "\u2581";

Result<void> Bpe::initialize() {
  const StringMap<uint32_t> &ids = options.vocabulary.ids;
  bool marksLead = true; // no merge puts a space mark behind another character
  for (size_t rank = 0; rank < options.merges.size(); ++rank) {
    const auto &[left, right] = options.merges[rank];
    for (const std::string &piece : {left, right})
      if (!ids.contains(piece))
        return Error{fmt::format("[{}]: the piece '{}' is not in the vocabulary", rank, piece)};
    if (right.size() < options.prefix.size())
      return Error{fmt::format("[{}]: '{}' is shorter than continuing_subword_prefix", rank, right)};
    const std::string whole = left + right.substr(options.prefix.size());
    const uint32_t id = idIn(ids, whole);
    if (id == kNoId)
      return Error{fmt::format("[{}]: the merged piece '{}' is not in the vocabulary", rank, whole)};
    merges.add(idIn(ids, left), idIn(ids, right), {static_cast<uint32_t>(rank), id});
    for (size_t at = whole.find(kSpaceMark, 1); at != whole.npos; at = whole.find(kSpaceMark, at + 1))
      marksLead &= at >= kSpaceMark.size() &&
                   whole.compare(at - kSpaceMark.size(), kSpaceMark.size(), kSpaceMark) == 0;
  }
  cutsAtSpaces = marksLead && ids.contains(kSpaceMark) && !options.ignoreMerges &&
                 options.prefix.empty() && options.suffix.empty();
  if (options.unknown)
    unknownId = idIn(ids, *options.unknown);
  for (int byte = 0; byte < 256; ++byte) {
    byteIds[byte] = idIn(ids, byteCharacters()[byte]);
    fallbackIds[byte] = idIn(ids, fmt::format("<0x{:02X}>", byte));
  }
  for (const auto &[piece, id] : ids) {
    if (!options.ignoreMerges)
      break;
    if (!options.byteLevel)
      words.emplace(piece, id);
    else if (auto bytes = bytesOfCharacters(piece))
      words.emplace(*bytes, id);
  }
  return {};
}

// Appends the ids of the single characters of a word, or of its bytes in byte-level pieces.
Result<void> Bpe::appendCharacters(std::string_view word, std::vector<uint32_t> &symbols) const {
  size_t pending = 0; // unknown characters whose id is not appended yet
  const auto flush = [&] {
    symbols.insert(symbols.end(), options.fuseUnknown ? pending > 0 : pending, unknownId);
    pending = 0;
  };
  std::string decorated;
  for (size_t at = 0; at < word.size();) {
    const size_t begin = at;
    at += options.byteLevel ? 1 : utf8Length(word[at]);
    std::string_view character = word.substr(begin, at - begin);
    uint32_t id;
    if (options.byteLevel && options.prefix.empty() && options.suffix.empty()) {
      id = byteIds[static_cast<uint8_t>(word[begin])];
    } else {
      const bool prefixed = begin > 0 && !options.prefix.empty();
      const bool suffixed = at == word.size() && !options.suffix.empty();
      if (prefixed || suffixed) {
        decorated.assign(prefixed ? options.prefix : "");
        decorated += character;
        decorated += suffixed ? options.suffix : "";
        character = decorated;
      }
      id = idIn(options.vocabulary.ids, character);
    }
    if (id != kNoId) {
      flush();
      symbols.push_back(id);
      continue;
    }
    if (options.byteFallback) {
      // The bytes of what a byte-level vocabulary misses are those of the character that it maps
      // the byte to.
      const std::string_view bytes =
          options.byteLevel ? byteCharacters()[static_cast<uint8_t>(word[begin])] : character;
      const bool all = std::all_of(bytes.begin(), bytes.end(), [&](char byte) {
        return fallbackIds[static_cast<uint8_t>(byte)] != kNoId;
      });
      if (all) {
        // Unknown characters before these bytes come behind them: the library has it so.
        for (char byte : bytes)
          symbols.push_back(fallbackIds[static_cast<uint8_t>(byte)]);
        continue;
      }
    }
    if (!options.unknown)
      continue;
    if (unknownId == kNoId)
      return Error{fmt::format("the character '{}' is unknown, and the vocabulary does not have its "
                               "unk_token '{}'",
                               character, *options.unknown)};
    ++pending;
  }
  flush();
  return {};
}

// Merges the pair of the lowest rank, and of equals the first, until no pair can be merged. For
// short words: looks at all pairs each time.
void Bpe::mergeShort(uint32_t *symbols, size_t &count, const IdSet *forbidden) const {
  Merge pairs[64];
  for (size_t i = 0; i + 1 < count; ++i)
    pairs[i] = merge(symbols[i], symbols[i + 1], forbidden);
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
      pairs[best - 1] = merge(symbols[best - 1], symbols[best], forbidden);
    if (best + 1 < count)
      pairs[best] = merge(symbols[best], symbols[best + 1], forbidden);
  }
}

// Does the same for words of any length, with a heap of pairs.
void Bpe::mergeLong(uint32_t *symbols, size_t &count, const IdSet *forbidden) const {
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
    Merge merge; // when the pair was found
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
    const Merge found = merge(leftId, rightId, forbidden);
    if (found.rank != kNoRank)
      queue.push({found.rank, left, found, leftId, rightId});
  };
  for (size_t i = 0; i + 1 < count; ++i)
    push(i);
  while (!queue.empty()) {
    const Pair pair = queue.top();
    queue.pop();
    Symbol &left = list[pair.left];
    // A symbol that was merged into the one before it has no id.
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

Result<void> Bpe::encode(std::string_view word, const IdSet *forbidden,
                         std::vector<uint32_t> &ids) const {
  if (options.ignoreMerges)
    if (uint32_t id = idIn(words, word); id != kNoId && !(forbidden && contains(*forbidden, id))) {
      ids.push_back(id);
      return {};
    }
  const size_t begin = ids.size();
  LMC_TRY(appendCharacters(word, ids));
  size_t count = ids.size() - begin;
  if (count <= 64)
    mergeShort(ids.data() + begin, count, forbidden);
  else
    mergeLong(ids.data() + begin, count, forbidden);
  ids.resize(begin + count);
  return {};
}

void Bpe::cut(std::string_view text, std::vector<std::string_view> &parts) const {
  if (!cutsAtSpaces)
    return parts.push_back(text);
  size_t begin = 0;
  for (size_t at = text.find(kSpaceMark, 1); at != text.npos; at = text.find(kSpaceMark, at + 1)) {
    if (at >= kSpaceMark.size() &&
        text.compare(at - kSpaceMark.size(), kSpaceMark.size(), kSpaceMark) == 0)
      continue;
    parts.push_back(text.substr(begin, at - begin));
    begin = at;
  }
  parts.push_back(text.substr(begin));
}

} // namespace

Result<std::unique_ptr<Model>> makeBpe(BpeOptions options) {
  auto model = std::make_unique<Bpe>(std::move(options));
  LMC_TRY(model->initialize());
  return std::unique_ptr<Model>(std::move(model));
}

} // namespace lmc
