// The tokenizer of a .model file. Its ids are those of the library `sentencepiece` 0.2.3.

#include "corpus/tokenizer/AddedTokens.h"
#include "corpus/tokenizer/Pipeline.h"
#include "corpus/tokenizer/SentencePieceModel.h"
#include "corpus/tokenizer/models/Merges.h"
#include "corpus/tokenizer/models/Trie.h"
#include "corpus/tokenizer/models/WordCache.h"
#include "corpus/tokenizer/unicode/Charsmap.h"
#include "corpus/tokenizer/unicode/Utf8.h"
#include "ground/support/File.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <set>
#include <utility>

namespace lmc {

namespace {

using Type = SentencePieceModel::Type;

constexpr uint64_t kMaximumModelBytes = 1 << 30;
constexpr float kUnknownPenalty = 10;  // unknown characters score this far below all normal pieces
constexpr size_t kLongestPiece = 8000; // bytes

class SentencePiece : public Tokenizer {
public:
  explicit SentencePiece(SentencePieceModel given) : model(std::move(given)) {}

  Result<void> initialize();
  Result<std::vector<std::unique_ptr<Encoder>>>
  encoders(size_t count, SpecialTokens mode, std::span<const uint32_t> borders) const override;
  Result<std::string> decode(std::span<const uint32_t> ids) const override;
  Result<std::vector<std::optional<uint64_t>>> bytesOfTokens() const override;
  std::optional<uint32_t> idOf(std::string_view token) const override {
    const uint32_t id = idIn(all, token);
    return id == kNoId ? std::nullopt : std::optional(id);
  }

private:
  friend class SentencePieceEncoder;
  SentencePieceModel model;
  std::optional<Charsmap> charsmap;
  StringMap<uint32_t> all;        // all pieces
  StringMap<uint32_t> symbols;    // ids of normal and user-defined pieces, and of `extra`
  std::vector<std::string> extra; // characters that occur in pieces but are no pieces; their
                                  // ids begin at pieces.size()
  uint32_t unknown = kNoId;
  std::array<uint32_t, 256> bytes; // ids of byte pieces
  TokenFinder userDefined;         // finds user-defined pieces, which are kept whole
  TokenFinder control;
  MergeTable merges{0};      // only for BPE
  // True if no piece has a space mark after another character and, for BPE, if the mark is a piece.
  bool cutsAtSpaces = false;
  Trie trie;                 // only for Unigram: the pieces
  std::vector<float> scores; // only for Unigram; scores[unknown] is for unknown characters
  float largestScore = 0;    // only for Unigram: the largest absolute score
  // True for ASCII characters (not the space) that normalizing keeps if an ASCII character follows.
  std::array<bool, 256> simple{};
  bool spaceIsSimple = false; // true if normalizing keeps a space before an ASCII character

  Result<void> initializeBpe();
  void initializeUnigram();
  void normalize(std::string_view text, std::string &result) const;
  // Normalizes the front of `text`. Returns the result, and how many bytes of `text` it replaces.
  std::pair<std::string_view, size_t> normalizeFront(std::string_view text) const;
};

// Compares the scores of BPE pieces. A score of +0 is higher than -0.
struct Higher {
  bool operator()(float a, float b) const {
    return a > b || (a == b && !std::signbit(a) && std::signbit(b));
  }
};

TokenFinder finderOf(const SentencePieceModel &model, Type type) {
  std::vector<AddedToken> tokens;
  for (uint32_t id = 0; id < model.pieces.size(); ++id)
    if (model.pieces[id].type == type)
      tokens.push_back({.id = id, .content = {}, .pattern = model.pieces[id].text});
  return TokenFinder(std::move(tokens));
}

Result<void> SentencePiece::initialize() {
  if (model.kind != SentencePieceModel::Kind::Bpe &&
      model.kind != SentencePieceModel::Kind::Unigram)
    return Error{"a model of the types WORD and CHAR is not supported"};
  if (!model.charsmap.empty()) {
    auto parsed = Charsmap::parse(model.charsmap);
    if (!parsed)
      return userError("precompiled_charsmap: {}", parsed.error().message);
    charsmap = std::move(*parsed);
  }
  bytes.fill(kNoId);
  size_t bytePieces = 0;
  for (uint32_t id = 0; id < model.pieces.size(); ++id) {
    const auto &[text, score, type] = model.pieces[id];
    if (!std::isfinite(score))
      return userError("the score of piece {} is no number", id);
    if (text == std::string_view("\0", 1) && type == Type::Unused)
      continue;
    // As in `sentencepiece`, a piece's length is limited. This bounds the work for its substrings.
    const auto fail = [&](const char *what) {
      return userError("piece {}, {}, {}", id, inQuotes(text), what);
    };
    if (text.size() >= kLongestPiece)
      return fail("has 8000 bytes or more");
    if (text.empty() || text.find('\0') != text.npos)
      return fail("is empty or has a NUL");
    if (!all.emplace(text, id).second)
      return fail("is defined twice");
    if (type == Type::Normal || type == Type::UserDefined)
      symbols.emplace(text, id);
    if (type == Type::Unknown && std::exchange(unknown, id) != kNoId)
      return fail("is a second unknown piece");
    bytePieces += type == Type::Byte;
  }
  if (symbols.empty())
    return Error{"the model has no piece that a text can become"};
  if (unknown == kNoId && !model.byteFallback)
    return Error{"the model has no unknown piece"};
  size_t found = 0;
  for (int byte = 0; byte < 256; ++byte)
    if (uint32_t id = idIn(all, bytePiece(byte));
        id != kNoId && model.pieces[id].type == Type::Byte) {
      bytes[byte] = id;
      ++found;
    }
  if (bytePieces != found || found != (model.byteFallback ? 256 : 0))
    return Error{
        "a model with byte_fallback must have the byte pieces <0x00> to <0xFF>, and another "
        "model none"};
  userDefined = finderOf(model, Type::UserDefined);
  control = finderOf(model, Type::Control);
  for (int a = 0; a < 128; ++a) {
    simple[a] = !userDefined.mayBegin(static_cast<char>(a));
    for (int b = 0; b < 128 && charsmap; ++b)
      simple[a] &= charsmap->keeps(static_cast<char>(a), static_cast<char>(b));
  }
  spaceIsSimple = std::exchange(simple[' '], false);
  limit = static_cast<uint32_t>(model.pieces.size());
  if (unknown != kNoId)
    unk = unknown;
  for (auto [text, id] : {std::pair{&model.begin, &bos}, std::pair{&model.end, &eos}})
    if (auto found = idOf(*text); found && model.pieces[*found].type == Type::Control)
      *id = found;
  if (model.kind == SentencePieceModel::Kind::Bpe)
    return initializeBpe();
  initializeUnigram();
  return {};
}

Result<void> SentencePiece::initializeBpe() {
  std::set<float, Higher> scores;
  bool innerMark = false;
  for (const auto &[text, score, type] : model.pieces) {
    if (type == Type::Unused && text != std::string_view("\0", 1))
      return userError("the unused piece {} of a BPE model is not supported", inQuotes(text));
    if (type != Type::Normal && type != Type::UserDefined)
      continue;
    scores.insert(score);
    innerMark |= hasInnerMark(text);
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      at += utf8Length(text[at]);
      std::string character = text.substr(begin, at - begin);
      const auto id = static_cast<uint32_t>(model.pieces.size() + extra.size());
      if (symbols.emplace(character, id).second)
        extra.push_back(std::move(character));
    }
  }
  // Each cut of a piece into two symbols is a merge. Pieces with higher scores get lower ranks.
  const std::vector<float> order(scores.begin(), scores.end());
  struct Pair {
    uint32_t left, right;
    Merge merge;
  };
  std::vector<Pair> pairs;
  for (const auto &[text, id] : symbols) {
    if (id >= model.pieces.size())
      continue;
    const auto place =
        std::lower_bound(order.begin(), order.end(), model.pieces[id].score, Higher());
    const Merge merge{static_cast<uint32_t>(place - order.begin()), id};
    for (size_t at = utf8Length(text[0]); at < text.size(); at += utf8Length(text[at])) {
      const std::string_view whole = text;
      const uint32_t left = idIn(symbols, whole.substr(0, at));
      const uint32_t right = idIn(symbols, whole.substr(at));
      if (left != kNoId && right != kNoId)
        pairs.push_back({left, right, merge});
    }
  }
  merges = MergeTable(pairs.size());
  for (const Pair &pair : pairs)
    merges.add(pair.left, pair.right, pair.merge);
  const uint32_t mark = idIn(symbols, kSpaceMark);
  cutsAtSpaces = !innerMark && mark != kNoId && mark < model.pieces.size();
  return {};
}

void SentencePiece::initializeUnigram() {
  float lowest = FLT_MAX;
  bool innerMark = false;
  for (uint32_t id = 0; id < model.pieces.size(); ++id) {
    const auto &[text, score, type] = model.pieces[id];
    if (type == Type::Normal)
      lowest = std::min(lowest, score);
    // A user-defined piece has such a high score that it is chosen wherever it occurs in a text.
    const auto bonus = static_cast<float>(0.1 * (static_cast<int>(text.size()) - 1));
    scores.push_back(type == Type::UserDefined ? bonus : score);
    if (type == Type::Normal || type == Type::UserDefined) {
      trie.add(text, id);
      innerMark |= hasInnerMark(text);
    }
  }
  cutsAtSpaces = !innerMark;
  trie.finish();
  if (unknown == kNoId) { // Without an unknown piece, unknown characters become bytes.
    unknown = static_cast<uint32_t>(scores.size());
    scores.push_back(0);
  }
  scores[unknown] = lowest - kUnknownPenalty;
  for (float score : scores)
    largestScore = std::max(largestScore, std::abs(score));
}

std::pair<std::string_view, size_t> SentencePiece::normalizeFront(std::string_view text) const {
  size_t length;
  if (userDefined.mayBegin(text[0]) && userDefined.longest(text, length) != kNoId)
    return {text.substr(0, length), length};
  if (charsmap)
    if (auto match = charsmap->longest(text))
      return {match->replacement, match->bytes};
  length = utf8Length(text[0]);
  return {text.substr(0, length), length};
}

void SentencePiece::normalize(std::string_view text, std::string &result) const {
  const std::string_view space = model.escapeSpaces ? kSpaceMark : " ";
  while (model.removeExtraSpaces && !text.empty()) {
    const auto [form, length] = normalizeFront(text);
    if (form != " ")
      break;
    text.remove_prefix(length);
  }
  result.clear();
  if (text.empty())
    return;
  result.reserve(text.size() + text.size() / 2);
  if (!model.spaceAsSuffix && model.dummyPrefix)
    result += space;
  bool afterSpace = model.removeExtraSpaces;
  while (!text.empty()) {
    // Copies ASCII characters that stay unchanged. Copies the last one only if an ASCII character
    // comes after it, because a character that is not ASCII may combine with it.
    size_t run = 0;
    while (run < text.size() && simple[static_cast<uint8_t>(text[run])])
      ++run;
    if (run > 0 && (run == text.size() || static_cast<uint8_t>(text[run]) >= 0x80))
      --run;
    if (run > 0) {
      result += text.substr(0, run);
      text.remove_prefix(run);
      afterSpace = false;
    }
    if (spaceIsSimple && text.size() > 1 && text[0] == ' ' &&
        static_cast<uint8_t>(text[1]) < 0x80) {
      if (!afterSpace)
        result += space;
      afterSpace = model.removeExtraSpaces;
      text.remove_prefix(1);
      continue;
    }
    auto [form, length] = normalizeFront(text);
    while (afterSpace && form.starts_with(' '))
      form.remove_prefix(1);
    for (char byte : form)
      if (byte == ' ')
        result += space;
      else
        result += byte;
    if (!form.empty())
      afterSpace = model.removeExtraSpaces && form.ends_with(' ');
    text.remove_prefix(length);
  }
  while (model.removeExtraSpaces && result.ends_with(space))
    result.resize(result.size() - space.size());
  if (model.spaceAsSuffix && model.dummyPrefix)
    result += space;
}

class SentencePieceEncoder : public Encoder {
public:
  // `owned` may be null; otherwise it is a tokenizer that this encoder keeps alive.
  SentencePieceEncoder(const SentencePiece &tokenizer, std::shared_ptr<const SentencePiece> owned,
                       SpecialTokens mode, std::span<const uint32_t> borders)
      : Encoder(mode, borders), owned(std::move(owned)), tokenizer(tokenizer),
        model(tokenizer.model) {}

protected:
  Result<void> encodeText(std::string_view text, std::vector<uint32_t> &ids) override {
    tokenizer.control.find(text, {}, parts, spelledAt);
    for (const Part &part : parts)
      if (part.id != kNoId)
        LMC_TRY(countSpelled(text, part.begin));
    tokenizer.normalize(text, normalized);
    if (normalized.size() >= kNoPlace)
      return Error{"a document of 4 GiB or more cannot be encoded by a model of SentencePiece"};
    afterUnknown = false;
    if (model.kind == SentencePieceModel::Kind::Unigram)
      encodeUnigram(normalized, ids);
    else
      encodeBpe(normalized, ids);
    return {};
  }

private:
  const std::shared_ptr<const SentencePiece> owned;
  const SentencePiece &tokenizer;
  const SentencePieceModel &model;
  WordCache cache; // ids of words; for Unigram, each with the limit that encodeUnigram() describes
  std::string normalized;
  std::vector<Part> parts;
  std::vector<size_t> spelledAt;
  static constexpr size_t kAhead = 8; // cache entries are prefetched 8 words early, slots 16 words
  std::vector<std::string_view> words;
  std::vector<uint64_t> hashes; // hashes of `words`
  std::vector<uint32_t> symbols;
  bool afterUnknown = false; // true if the last id is that of unknown characters

  void appendKnown(uint32_t id, std::vector<uint32_t> &ids) {
    ids.push_back(id);
    afterUnknown = false;
  }
  void appendUnknown(std::string_view character, std::vector<uint32_t> &ids) {
    if (model.byteFallback)
      for (char byte : character)
        ids.push_back(tokenizer.bytes[static_cast<uint8_t>(byte)]);
    else if (!afterUnknown)
      ids.push_back(tokenizer.unknown);
    afterUnknown = true;
  }

  void encodeBpe(std::string_view text, std::vector<uint32_t> &ids) {
    if (tokenizer.userDefined.empty())
      return encodeSegment(text, ids);
    // Finds user-defined pieces first, from left to right. Other pieces are not merged with them.
    tokenizer.userDefined.find(text, {}, parts, spelledAt);
    for (const Part &part : parts)
      if (part.id != kNoId)
        appendKnown(part.id, ids);
      else
        encodeSegment(text.substr(part.begin, part.end - part.begin), ids);
  }

  void encodeSegment(std::string_view text, std::vector<uint32_t> &ids) {
    if (!tokenizer.cutsAtSpaces)
      return encodeWord(text, ids);
    words.clear();
    cutBeforeMarks(text, words);
    for (std::string_view word : words) {
      // A word with a leading space mark has the same ids after any text, as the mark is a piece.
      const bool alone = word.starts_with(kSpaceMark);
      if (const auto known = alone ? cache.find(word) : std::nullopt) {
        ids.insert(ids.end(), known->ids.begin(), known->ids.end());
        afterUnknown = false;
        continue;
      }
      const size_t begin = ids.size();
      encodeWord(word, ids);
      if (alone)
        cache.add(word, std::span(ids).subspan(begin));
    }
  }

  void encodeWord(std::string_view word, std::vector<uint32_t> &ids) {
    symbols.clear();
    const auto flush = [&] {
      mergeSymbols(tokenizer.merges, nullptr, symbols, 0);
      for (uint32_t symbol : symbols)
        if (symbol < model.pieces.size())
          appendKnown(symbol, ids);
        else
          appendUnknown(tokenizer.extra[symbol - model.pieces.size()], ids);
      symbols.clear();
    };
    for (size_t at = 0; at < word.size();) {
      const std::string_view character = word.substr(at, utf8Length(word[at]));
      at += character.size();
      const uint32_t symbol = idIn(tokenizer.symbols, character);
      if (symbol != kNoId) {
        symbols.push_back(symbol);
        continue;
      }
      flush();
      appendUnknown(character, ids);
    }
    flush();
  }

  // Appends the ids of the segmentation with the highest sum of scores. As in `sentencepiece`, one
  // float holds the sum over the whole text. Its rounding may change which segmentation of a later
  // word is best. So the cache keeps a limit with each segmentation. The segmentation is the best
  // one while the sum before the word has an absolute value below the limit.
  void encodeUnigram(std::string_view text, std::vector<uint32_t> &ids) {
    words.clear();
    if (tokenizer.cutsAtSpaces)
      cutBeforeMarks(text, words);
    else
      words.push_back(text);
    hashes.resize(words.size());
    for (size_t i = 0; i < words.size(); ++i)
      hashes[i] = WordCache::hashOf(words[i]);
    float score = 0; // score of the best segmentation of the text before the word
    for (size_t i = 0; i < words.size(); ++i) {
      if (i + 2 * kAhead < words.size()) {
        cache.loadSlot(hashes[i + 2 * kAhead]);
        cache.loadEntry(hashes[i + kAhead]);
      }
      const std::string_view word = words[i];
      const auto known = cache.find(word, hashes[i]);
      if (known && std::abs(score) < known->note) {
        for (uint32_t piece : known->ids)
          score += tokenizer.scores[piece];
        appendSegmentation(word, known->ids, ids);
        continue;
      }
      score = segment(word, score);
      if (!known && certainBelow > 0)
        cache.add(word, segmentation, certainBelow);
      appendSegmentation(word, segmentation, ids);
    }
  }

  // Appends the ids of a word's `pieces`, which have the unknown piece once per unknown character.
  void appendSegmentation(std::string_view word, std::span<const uint32_t> pieces,
                          std::vector<uint32_t> &ids) {
    if (std::find(pieces.begin(), pieces.end(), tokenizer.unknown) == pieces.end()) {
      ids.insert(ids.end(), pieces.begin(), pieces.end());
      afterUnknown = false;
      return;
    }
    size_t at = 0;
    for (uint32_t piece : pieces) {
      const bool unknown = piece == tokenizer.unknown;
      const size_t length = unknown ? utf8Length(word[at]) : model.pieces[piece].text.size();
      if (unknown)
        appendUnknown(word.substr(at, length), ids);
      else
        appendKnown(piece, ids);
      at += length;
    }
  }

  static constexpr float kReset = 100000; // larger sums would lose digits; they restart at 0

  // The best segmentation of the text that ends at one byte of the word.
  struct Best {
    float score = 0;
    float second = -FLT_MAX;   // score of the second best segmentation
    uint32_t piece = kNoId;    // the last piece
    uint32_t begin = kNoPlace; // begin of the last piece; kNoPlace: no piece ends here
  };
  static constexpr uint32_t kNoPlace = UINT32_MAX;
  std::vector<Best> best;
  // segment() sets these. `segmentation` has the best pieces of the word. They are also the best
  // ones after any other text whose sum of scores has an absolute value below `certainBelow`.
  std::vector<uint32_t> segmentation;
  float certainBelow = 0;

  // Segments a word after a text with the sum `score`. Returns `score` plus the word's score.
  float segment(std::string_view word, const float score) {
    best.assign(word.size() + 1, {});
    best[0].score = score;
    size_t characters = 0;
    for (size_t begin = 0; begin < word.size(); ++characters) {
      float before = best[begin].score;
      if (std::abs(before) > kReset) {
        for (size_t i = begin; i < best.size(); ++i)
          if (i == begin || best[i].begin != kNoPlace)
            best[i].score -= before;
        before = 0;
      }
      const auto offer = [&](size_t end, float ofPiece, uint32_t piece) {
        Best &target = best[end];
        const float sum = ofPiece + before;
        if (target.begin == kNoPlace)
          target = {sum, -FLT_MAX, piece, static_cast<uint32_t>(begin)};
        else if (sum > target.score)
          target = {sum, target.score, piece, static_cast<uint32_t>(begin)};
        else
          target.second = std::max(target.second, sum);
      };
      const size_t character = utf8Length(word[begin]);
      bool single = false; // true if the character at `begin` is a piece
      uint32_t node = 0;
      for (size_t end = begin; end < word.size();) {
        node = tokenizer.trie.child(node, word[end++]);
        if (node == 0)
          break;
        const uint32_t piece = tokenizer.trie.value(node);
        if (piece == kNoId)
          continue;
        offer(end, tokenizer.scores[piece], piece);
        single |= end - begin == character;
      }
      if (!single)
        offer(begin + character, tokenizer.scores[tokenizer.unknown], tokenizer.unknown);
      begin += character;
    }
    segmentation.clear();
    float margin = FLT_MAX; // score of the segmentation minus that of the second best
    for (size_t end = word.size(); end > 0; end = best[end].begin) {
      segmentation.push_back(best[end].piece);
      margin = std::min(margin, best[end].score - best[end].second);
    }
    std::reverse(segmentation.begin(), segmentation.end());
    // A sum of n floats has a rounding error of at most n / 2 units in the last place. `margin` is
    // a difference of two sums. Both sums may round differently after another text.
    const float units = static_cast<float>(characters + 2) * FLT_EPSILON;
    const float reach = static_cast<float>(characters) * tokenizer.largestScore;
    certainBelow = std::min(kReset, margin / units - std::abs(score) - reach) - reach;
    if (std::abs(score) + reach > kReset) // the sums may have restarted at 0: nothing is certain
      certainBelow = 0;
    return best[word.size()].score;
  }
};

Result<std::vector<std::unique_ptr<Encoder>>>
SentencePiece::encoders(size_t count, SpecialTokens mode, std::span<const uint32_t> borders) const {
  if (mode == SpecialTokens::Parse)
    return Error{"a model of SentencePiece does not parse special tokens in a text; use "
                 "--special-tokens=text"};
  // Makes the pieces in `borders` control pieces, so that no text is encoded as one of them.
  SentencePieceModel changed;
  for (uint32_t id : borders) {
    if (id >= model.pieces.size() ||
        (model.pieces[id].type != Type::Normal && model.pieces[id].type != Type::UserDefined))
      continue;
    if (changed.pieces.empty())
      changed = model;
    changed.pieces[id].type = Type::Control;
  }
  std::shared_ptr<SentencePiece> owned;
  if (!changed.pieces.empty()) {
    owned = std::make_shared<SentencePiece>(std::move(changed));
    LMC_TRY(owned->initialize());
  }
  std::vector<std::unique_ptr<Encoder>> result;
  for (size_t i = 0; i < count; ++i)
    result.push_back(
        std::make_unique<SentencePieceEncoder>(owned ? *owned : *this, owned, mode, borders));
  return result;
}

Result<std::string> SentencePiece::decode(std::span<const uint32_t> ids) const {
  std::string text, pending; // `pending`: bytes of byte pieces that are not in `text` yet
  const auto flush = [&] {
    for (std::string_view rest = pending; !rest.empty();) {
      const size_t length = validUtf8Length(rest);
      text += length > 0 ? rest.substr(0, length) : "\xef\xbf\xbd"; // U+FFFD for each invalid byte
      rest.remove_prefix(std::max<size_t>(length, 1));
    }
    pending.clear();
  };
  bool atBegin = true;
  for (uint32_t id : ids) {
    if (id >= model.pieces.size())
      continue;
    const auto &[piece, score, type] = model.pieces[id];
    if (type == Type::Byte) {
      const auto byte = std::find(bytes.begin(), bytes.end(), id) - bytes.begin();
      pending += static_cast<char>(byte);
      continue;
    }
    flush();
    atBegin &= text.empty();
    if (type == Type::Control)
      continue;
    std::string_view rest = piece;
    bool removed = false;
    if (atBegin && (model.dummyPrefix || model.removeExtraSpaces) && rest.starts_with(kSpaceMark)) {
      rest.remove_prefix(kSpaceMark.size());
      removed = !model.removeExtraSpaces;
    }
    if (type == Type::Unknown) {
      text += model.unknownText;
    } else {
      std::string plain(rest);
      for (size_t at; (at = plain.find(kSpaceMark)) != std::string::npos;)
        plain.replace(at, kSpaceMark.size(), " ");
      text += plain;
    }
    atBegin &= !removed && text.empty();
  }
  flush();
  return text;
}

Result<std::vector<std::optional<uint64_t>>> SentencePiece::bytesOfTokens() const {
  std::vector<std::optional<uint64_t>> result(vocabulary(), 0);
  for (uint32_t id = 0; id < model.pieces.size(); ++id) {
    const auto &[piece, score, type] = model.pieces[id];
    if (type == Type::Control || type == Type::Unused)
      continue;
    if (type == Type::Unknown) {
      result[id].reset();
      continue;
    }
    uint64_t size = type == Type::Byte ? 1 : piece.size();
    if (type != Type::Byte)
      for (size_t at = 0; (at = piece.find(kSpaceMark, at)) != std::string::npos;
           at += kSpaceMark.size())
        size -= kSpaceMark.size() - 1; // a mark stands for a space, one byte of text
    result[id] = size;
  }
  return result;
}

} // namespace

Result<std::shared_ptr<const Tokenizer>> readSentencePieceModel(const std::string &path) {
  LMC_LET(bytes, readTextFile(path, kMaximumModelBytes));
  auto model = parseSentencePieceModel(*bytes);
  if (!model)
    return userError("{}: {}", path, model.error().message);
  auto tokenizer = std::make_shared<SentencePiece>(std::move(*model));
  if (Result<void> done = tokenizer->initialize(); !done)
    return userError("{}: {}", path, done.error().message);
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

} // namespace lmc
