#include "corpus/tokenizer/models/Merges.h"
#include "corpus/tokenizer/models/Model.h"
#include "corpus/tokenizer/unicode/Utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace lmc {

std::string bytePiece(int byte) { return fmt::format("<0x{:02X}>", byte); }

const std::vector<std::string> &byteCharacters() {
  static const auto map = [] {
    std::vector<std::string> characters(256);
    char32_t next = 256; // next character for a byte that is no printable Latin-1 character
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

class Bpe : public Model {
public:
  explicit Bpe(BpeOptions given) : options(std::move(given)), merges(options.merges.size()) {}

  Result<void> initialize();
  Result<void> encode(std::string_view word, const IdSet *forbidden,
                      std::vector<uint32_t> &ids) const override;
  const Vocabulary &vocabulary() const override { return options.vocabulary; }
  std::optional<uint32_t> unknown() const override {
    return unknownId == kNoId ? std::nullopt : std::optional(unknownId);
  }
  size_t size() const override { return options.vocabulary.ids.size(); }
  void cut(std::string_view text, std::vector<std::string_view> &parts) const override;

private:
  BpeOptions options;
  MergeTable merges;
  uint32_t unknownId = kNoId;
  std::array<uint32_t, 256> byteIds;     // id of each byte's piece, if byte-level
  std::array<uint32_t, 256> fallbackIds; // id of each byte's piece "<0xHH>"
  StringMap<uint32_t> words; // with ignoreMerges: from the bytes of each piece to its id
  // True if cutting a text before each space mark that comes after a character other than a space
  // mark does not change the text's ids.
  bool cutsAtSpaces = false;

  Result<void> appendCharacters(std::string_view word, const IdSet *forbidden,
                                std::vector<uint32_t> &symbols) const;
};

Result<void> Bpe::initialize() {
  const StringMap<uint32_t> &ids = options.vocabulary.ids;
  bool marksLead = true; // true if no merge puts a space mark after another character
  for (size_t rank = 0; rank < options.merges.size(); ++rank) {
    const auto &[left, right] = options.merges[rank];
    const auto fail = [&](const std::string &what) {
      return userError("the merge of {} and {}: {}", inQuotes(left), inQuotes(right), what);
    };
    for (const std::string &piece : {left, right})
      if (!ids.contains(piece))
        return fail(inQuotes(piece) + " is not in the vocabulary");
    if (right.size() < options.prefix.size())
      return fail(inQuotes(right) + " is shorter than continuing_subword_prefix");
    const std::string whole = left + right.substr(options.prefix.size());
    const uint32_t id = idIn(ids, whole);
    if (id == kNoId)
      return fail(inQuotes(whole) + " is not in the vocabulary");
    merges.add(idIn(ids, left), idIn(ids, right), {static_cast<uint32_t>(rank), id});
    marksLead &= !hasInnerMark(whole);
  }
  cutsAtSpaces = marksLead && !options.byteLevel && ids.contains(kSpaceMark) &&
                 !options.ignoreMerges && options.prefix.empty() && options.suffix.empty();
  if (options.unknown)
    unknownId = idIn(ids, *options.unknown);
  for (int byte = 0; byte < 256; ++byte) {
    byteIds[byte] = idIn(ids, byteCharacters()[byte]);
    fallbackIds[byte] = idIn(ids, bytePiece(byte));
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

// Appends the ids of a word's characters or, in a byte-level vocabulary, of its bytes.
Result<void> Bpe::appendCharacters(std::string_view word, const IdSet *forbidden,
                                   std::vector<uint32_t> &symbols) const {
  size_t pending = 0; // number of unknown characters whose id is not appended yet
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
    const bool isForbidden = forbidden && contains(*forbidden, id);
    if (id != kNoId && !isForbidden) {
      flush();
      symbols.push_back(id);
      continue;
    }
    if (options.byteFallback) {
      // If byte-level, a byte without an id gets the UTF-8 bytes of its character in GPT-2's map.
      const std::string_view bytes =
          options.byteLevel ? byteCharacters()[static_cast<uint8_t>(word[begin])] : character;
      const bool all = std::all_of(bytes.begin(), bytes.end(), [&](char byte) {
        return fallbackIds[static_cast<uint8_t>(byte)] != kNoId;
      });
      if (all) {
        // As in `tokenizers`, these bytes' ids come before those of earlier unknown characters.
        for (char byte : bytes)
          symbols.push_back(fallbackIds[static_cast<uint8_t>(byte)]);
        continue;
      }
    }
    if (!options.unknown && isForbidden)
      return userError("the text has {}, whose only token is the special token of id {}; "
                       "--special-tokens=parse makes that of it",
                       inQuotes(character), id);
    if (!options.unknown)
      continue;
    if (unknownId == kNoId)
      return userError(
          "the character {} is unknown, and the vocabulary does not have its unk_token {}",
          inQuotes(character), inQuotes(*options.unknown));
    if (!options.fuseUnknown)
      flush();
    ++pending;
  }
  flush();
  return {};
}

Result<void> Bpe::encode(std::string_view word, const IdSet *forbidden,
                         std::vector<uint32_t> &ids) const {
  if (options.ignoreMerges)
    if (uint32_t id = idIn(words, word); id != kNoId && !(forbidden && contains(*forbidden, id))) {
      ids.push_back(id);
      return {};
    }
  const size_t begin = ids.size();
  LMC_TRY(appendCharacters(word, forbidden, ids));
  mergeSymbols(merges, forbidden, ids, begin);
  return {};
}

void Bpe::cut(std::string_view text, std::vector<std::string_view> &parts) const {
  if (!cutsAtSpaces)
    return parts.push_back(text);
  cutBeforeMarks(text, parts);
}

} // namespace

Result<std::unique_ptr<Model>> makeBpe(BpeOptions options) {
  auto model = std::make_unique<Bpe>(std::move(options));
  LMC_TRY(model->initialize());
  return std::unique_ptr<Model>(std::move(model));
}

} // namespace lmc
