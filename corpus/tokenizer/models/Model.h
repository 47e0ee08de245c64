// Models turn a word into ids. A pre-tokenizer has split a text into words before.
#pragma once

#include "ground/support/Result.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lmc {

inline constexpr uint32_t kNoId = UINT32_MAX;

// A set of ids: element i is true if i is in the set. Ids beyond the end are not in the set.
using IdSet = std::vector<bool>;
inline bool contains(const IdSet &set, uint32_t id) { return id < set.size() && set[id]; }
inline void add(IdSet &set, uint32_t id) {
  set.resize(std::max<size_t>(set.size(), size_t(id) + 1));
  set[id] = true;
}

// A map with string keys. Searching for a string_view makes no copy of it.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <typename T>
using StringMap = std::unordered_map<std::string, T, StringHash, std::equal_to<>>;
inline uint32_t idIn(const StringMap<uint32_t> &map, std::string_view text) {
  auto found = map.find(text);
  return found == map.end() ? kNoId : found->second;
}

struct Vocabulary {
  StringMap<uint32_t> ids;
  std::vector<std::string> pieces; // pieces by id; "" for an id without a piece
};

class Model {
public:
  virtual ~Model() = default;
  // Appends the ids of a word that is not empty. A character whose token is in `forbidden` (may be
  // null) counts as unknown. Error: a character (of a byte-level vocabulary: a byte) is unknown,
  // and no token stands for unknown characters. But BPE without BpeOptions::unknown leaves out a
  // character that has no token at all. Several threads may call encode() at the same time.
  virtual Result<void> encode(std::string_view word, const IdSet *forbidden,
                              std::vector<uint32_t> &ids) const = 0;
  virtual const Vocabulary &vocabulary() const = 0;
  // Returns the id that stands for unknown characters, if there is one.
  virtual std::optional<uint32_t> unknown() const = 0;
  // Returns the number of tokens in the vocabulary. BPE counts equal tokens once.
  virtual size_t size() const = 0;
  // Cuts a text into parts. The ids of the parts, one after the other, are the ids of the text.
  virtual void cut(std::string_view text, std::vector<std::string_view> &parts) const {
    parts.push_back(text);
  }
};

// Byte pair encoding.
struct BpeOptions {
  Vocabulary vocabulary;
  // The pairs of pieces that can be merged, in order of priority (the highest first).
  std::vector<std::pair<std::string, std::string>> merges;
  std::optional<std::string> unknown; // the piece for unknown characters; absent: they get no id
  std::string prefix;                 // prefix of pieces that do not begin a word
  std::string suffix;                 // suffix of pieces that end a word
  bool fuseUnknown = false;           // neighbouring unknown characters make one id
  bool byteFallback = false; // an unknown character becomes the pieces "<0xHH>" of its bytes
  bool ignoreMerges = false; // a word that is a piece becomes this piece, without merges
  bool byteLevel = false;    // pieces stand for bytes, as GPT-2 maps them to characters
};
// The Error is a clause that says why a merge is impossible with the vocabulary.
Result<std::unique_ptr<Model>> makeBpe(BpeOptions options);

// The unigram language model. It takes the segmentation with the highest probability.
struct UnigramOptions {
  std::vector<std::pair<std::string, double>> pieces; // (piece, score), by id
  std::optional<uint32_t> unknown;
  bool byteFallback = false;
};
Result<std::unique_ptr<Model>> makeUnigram(UnigramOptions options);

// Returns the piece "<0xHH>", which stands for a byte of an unknown character.
std::string bytePiece(int byte);

// Returns GPT-2's map: element b is a printable character (UTF-8) that stands for byte b.
const std::vector<std::string> &byteCharacters();
// Returns the bytes for which the characters of `text` stand; nullopt if a character has no byte.
std::optional<std::string> bytesOfCharacters(std::string_view text);

} // namespace lmc
