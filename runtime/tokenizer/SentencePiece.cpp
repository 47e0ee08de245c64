// The tokenizer of a .model file. It gives the ids of `sentencepiece` 0.2.3.

#include "runtime/support/File.h"
#include "runtime/tokenizer/AddedTokens.h"
#include "runtime/tokenizer/Charsmap.h"
#include "runtime/tokenizer/Merges.h"
#include "runtime/tokenizer/Pipeline.h"
#include "runtime/tokenizer/SentencePieceModel.h"
#include "runtime/tokenizer/Trie.h"
#include "runtime/tokenizer/Utf8.h"
#include "runtime/tokenizer/WordCache.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cfloat>
#include <cmath>
#include <set>
#include <utility>

namespace lmc {

namespace {

using Type = SentencePieceModel::Type;

constexpr uint64_t kMaximumBytes = 1 << 30;
constexpr float kUnknownPenalty = 10;  // below the lowest score of a normal piece
constexpr size_t kLongestPiece = 8000; // bytes

class SentencePiece : public Tokenizer {
public:
  explicit SentencePiece(SentencePieceModel given) : model(std::move(given)) {}

  Result<void> initialize();
  Result<std::vector<std::unique_ptr<Encoder>>>
  encoders(size_t count, SpecialTokens mode, std::span<const uint32_t> borders) const override;
  Result<std::string> decode(std::span<const uint32_t> ids) const override;
  std::optional<uint32_t> idOf(std::string_view token) const override {
    const uint32_t id = idIn(all, token);
    return id == kNoId ? std::nullopt : std::optional(id);
  }

private:
  friend class SentencePieceEncoder;
  SentencePieceModel model;
  std::optional<Charsmap> charsmap;
  StringMap<uint32_t> all;        // all pieces
  StringMap<uint32_t> symbols;    // pieces that text can become, and `extra`
  std::vector<std::string> extra; // characters of pieces that are no piece, from
                                  // pieces.size() on
  uint32_t unknown = kNoId;
  std::array<uint32_t, 256> bytes; // ids of byte pieces
  TokenFinder userDefined{{}, {}}; // pieces that are kept whole
  TokenFinder control{{}, {}};
  MergeTable merges{0};      // of BPE
  bool cutsAtSpaces = false; // no piece crosses the begin of a space mark behind another character
  Trie trie;                 // of Unigram
  std::vector<float> scores; // of Unigram's pieces
  float unknownScore = 0;
  // plain[a][b]: the ASCII character a, which is no space, stays as it is before b.
  std::array<std::bitset<128>, 128> plain;

  Result<void> initializeBpe();
  void initializeUnigram();
  std::string normalize(std::string_view text) const;
  // The normal form of the front of `text`, and the bytes of `text` that it is made of.
  std::pair<std::string_view, size_t> normalizeFront(std::string_view text) const;
};

// The order of scores in BPE, in which +0 is higher than -0.
struct Higher {
  bool operator()(float a, float b) const {
    return a > b || (a == b && !std::signbit(a) && std::signbit(b));
  }
};

TokenFinder finderOf(const SentencePieceModel &model, Type type) {
  std::vector<AddedToken> tokens;
  std::vector<std::string> patterns;
  for (uint32_t id = 0; id < model.pieces.size(); ++id)
    if (model.pieces[id].type == type) {
      tokens.push_back({.id = id, .content = model.pieces[id].text});
      patterns.push_back(model.pieces[id].text);
    }
  return TokenFinder(std::move(tokens), patterns);
}

Result<void> SentencePiece::initialize() {
  if (model.kind != SentencePieceModel::Kind::Bpe &&
      model.kind != SentencePieceModel::Kind::Unigram)
    return Error{"a model of the types WORD and CHAR is not supported"};
  if (!model.charsmap.empty()) {
    auto parsed = Charsmap::parse(model.charsmap);
    if (!parsed)
      return Error{fmt::format("precompiled_charsmap: {}", parsed.error().message)};
    charsmap = std::move(*parsed);
  }
  bytes.fill(kNoId);
  size_t bytePieces = 0;
  for (uint32_t id = 0; id < model.pieces.size(); ++id) {
    const auto &[text, score, type] = model.pieces[id];
    if (!std::isfinite(score))
      return Error{fmt::format("the score of piece {} is no number", id)};
    if (text == std::string_view("\0", 1) && type == Type::Unused)
      continue;
    // As in the library. The bound also bounds the work for a piece, whose every part is looked up.
    const auto fail = [&](const char *what) {
      return Error{fmt::format("piece {}, {}, {}", id, quoted(text), what)};
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
  for (char a = 0; a >= 0 && a < 127; ++a)
    for (char b = 0; b >= 0 && b < 127; ++b)
      plain[a][b] = a != ' ' && !userDefined.mayBegin(a) && (!charsmap || charsmap->keeps(a, b));
  limit = static_cast<uint32_t>(model.pieces.size());
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
      return Error{
          fmt::format("the unused piece {} of a BPE model is not supported", quoted(text))};
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
  // Each division of a piece into two symbols is a merge. Pieces of equal scores are equal.
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
    // A user-defined piece is chosen wherever it is found.
    const auto bonus = static_cast<float>(0.1 * (static_cast<int>(text.size()) - 1));
    scores.push_back(type == Type::UserDefined ? bonus : score);
    if (type == Type::Normal || type == Type::UserDefined) {
      trie.add(text, id);
      innerMark |= hasInnerMark(text);
    }
  }
  cutsAtSpaces = !innerMark;
  trie.finish();
  unknownScore = lowest - kUnknownPenalty;
}

std::pair<std::string_view, size_t> SentencePiece::normalizeFront(std::string_view text) const {
  size_t length;
  if (userDefined.longest(text, length) != kNoId)
    return {text.substr(0, length), length};
  if (charsmap)
    if (auto match = charsmap->longest(text))
      return {match->replacement, match->bytes};
  length = utf8Length(text[0]);
  return {text.substr(0, length), length};
}

std::string SentencePiece::normalize(std::string_view text) const {
  const std::string_view space = model.escapeSpaces ? kSpaceMark : " ";
  while (model.removeExtraSpaces && !text.empty()) {
    const auto [form, length] = normalizeFront(text);
    if (form != " ")
      break;
    text.remove_prefix(length);
  }
  std::string result;
  if (text.empty())
    return result;
  result.reserve(text.size() + text.size() / 2);
  if (!model.spaceAsSuffix && model.dummyPrefix)
    result += space;
  bool afterSpace = model.removeExtraSpaces;
  while (!text.empty()) {
    size_t run = 0; // of characters that stay as they are
    while (run + 1 < text.size() && static_cast<uint8_t>(text[run]) < 0x80 &&
           static_cast<uint8_t>(text[run + 1]) < 0x80 && plain[text[run]][text[run + 1]])
      ++run;
    if (run > 0) {
      result += text.substr(0, run);
      text.remove_prefix(run);
      afterSpace = false;
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
  return result;
}

class SentencePieceEncoder : public Encoder {
public:
  // `owned`: null, or a tokenizer that the encoder keeps alive.
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
    const std::string normalized = tokenizer.normalize(text);
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
  WordCache cache;
  std::vector<Part> parts;
  std::vector<size_t> spelledAt;
  std::vector<std::string_view> words;
  std::vector<uint32_t> symbols;
  bool afterUnknown = false; // the last id is that of unknown characters

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
    // User-defined pieces are found first, from the left, and not merged.
    size_t begin = 0;
    for (size_t at = 0; at < text.size() && !tokenizer.userDefined.empty();) {
      size_t length;
      const uint32_t piece = tokenizer.userDefined.longest(text.substr(at), length);
      if (piece == kNoId) {
        at += utf8Length(text[at]);
        continue;
      }
      encodeSegment(text.substr(begin, at - begin), ids);
      appendKnown(tokenizer.userDefined.idOf(piece), ids);
      begin = at += length;
    }
    encodeSegment(text.substr(begin), ids);
  }

  // Encodes text without user-defined pieces.
  void encodeSegment(std::string_view text, std::vector<uint32_t> &ids) {
    if (!tokenizer.cutsAtSpaces)
      return encodeWord(text, ids);
    words.clear();
    cutBeforeMarks(text, words);
    for (std::string_view word : words) {
      // A word that begins with a mark, a known piece, does not depend on what is before it.
      const bool alone = word.starts_with(kSpaceMark);
      if (alone && cache.find(word, ids)) {
        afterUnknown = false;
        continue;
      }
      const size_t begin = ids.size();
      encodeWord(word, ids);
      if (alone)
        cache.add(word, ids.data() + begin, ids.size() - begin);
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

  // The segmentation of the highest score. As in the library, scores are sums of type float that
  // run over the whole text: where two segmentations of a word are close, rounding decides, and so
  // it depends on the place. Words are remembered whose segmentations are further apart than that.
  void encodeUnigram(std::string_view text, std::vector<uint32_t> &ids) {
    words.clear();
    if (tokenizer.cutsAtSpaces)
      cutBeforeMarks(text, words);
    else
      words.push_back(text);
    float score = 0; // of the best segmentation up to the word
    for (std::string_view word : words) {
      const auto found = segmented.find(word);
      if (found == segmented.end() || !found->second.certain(score, word.size())) {
        score = encodeUnigramWord(word, score, ids);
        continue;
      }
      for (uint32_t i = 0; i < found->second.count; ++i) {
        const uint32_t id = remembered[found->second.first + i];
        score += tokenizer.scores[id];
        appendKnown(id, ids);
      }
    }
  }

  static constexpr float kReset = 100000; // sums beyond it would lose digits, and begin again

  // The best segmentation of a word, in ids of `remembered`.
  struct Segmented {
    uint32_t first = 0, count = 0;
    float margin = 0; // the least difference of scores that decided, without rounding
    float reach = 0;  // the largest score of a part of the word, without its sign

    // Returns true if rounding cannot change the segmentation behind a text of this score. A sum of
    // n numbers has an error of at most n / 2 units in the last place.
    bool certain(float score, size_t bytes) const {
      const float largest = std::abs(score) + reach;
      return largest < kReset && margin > 2 * static_cast<float>(bytes) * FLT_EPSILON * largest;
    }
  };
  StringMap<Segmented> segmented;
  std::vector<uint32_t> remembered;

  struct Best {
    float score = 0;
    uint32_t id = kNoId;
    size_t begin = SIZE_MAX;
    double exact = 0;         // the score of the word's part alone, without rounding
    double second = -DBL_MAX; // the same of the second best segmentation
  };
  std::vector<Best> best; // segmentations that end at each byte of a word

  // Appends the ids of a word behind a text of a score. Returns the score with the word.
  float encodeUnigramWord(std::string_view text, float score, std::vector<uint32_t> &ids) {
    best.assign(text.size() + 1, {});
    best[0].score = score;
    size_t frontier = 0;
    double reach = 0;
    bool known = true; // no character is unknown
    for (size_t begin = 0; begin < text.size();) {
      float before = best[begin].score;
      if (std::abs(before) > kReset) {
        for (size_t i = begin; i <= frontier; ++i)
          if (i == begin || best[i].begin != SIZE_MAX)
            best[i].score -= before;
        before = 0;
      }
      const double exactBefore = best[begin].exact;
      const size_t character = utf8Length(text[begin]);
      bool single = false;
      const auto offer = [&](size_t end, float ofPiece, uint32_t id) {
        frontier = std::max(frontier, end);
        Best &target = best[end];
        const bool first = target.begin == SIZE_MAX;
        const float sum = ofPiece + before;
        const double exact = ofPiece + exactBefore;
        reach = std::max(reach, std::abs(exact));
        if (first || exact > target.exact) {
          target.second = first ? -DBL_MAX : target.exact;
          target.exact = exact;
        } else {
          target.second = std::max(target.second, exact);
        }
        if (first || sum > target.score) {
          target.score = sum;
          target.id = id;
          target.begin = begin;
        }
      };
      uint32_t node = 0;
      for (size_t end = begin; end < text.size();) {
        node = tokenizer.trie.child(node, text[end++]);
        if (node == 0)
          break;
        const uint32_t id = tokenizer.trie.value(node);
        if (id == kNoId)
          continue;
        offer(end, tokenizer.scores[id], id);
        single |= end - begin == character;
      }
      if (!single) {
        offer(begin + character, tokenizer.unknownScore, tokenizer.unknown);
        known = false;
      }
      begin += character;
    }
    std::vector<size_t> ends;
    double margin = DBL_MAX;
    for (const Best &each : best)
      if (each.begin != SIZE_MAX && each.second != -DBL_MAX)
        margin = std::min(margin, each.exact - each.second);
    for (size_t end = text.size(); end > 0; end = best[end].begin)
      ends.push_back(end);
    const size_t idsBefore = ids.size();
    for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
      const Best &piece = best[*end];
      if (piece.id == tokenizer.unknown)
        appendUnknown(text.substr(piece.begin, *end - piece.begin), ids);
      else
        appendKnown(piece.id, ids);
    }
    if (known && text.size() <= WordCache::kLongestWord)
      remember(text, score, ids, idsBefore, margin, reach);
    return best[text.size()].score;
  }

  void remember(std::string_view word, float score, const std::vector<uint32_t> &ids, size_t first,
                double margin, double reach) {
    constexpr size_t kWords = 1 << 17;
    if (segmented.size() >= kWords) {
      segmented.clear();
      remembered.clear();
    }
    const Segmented entry{
        static_cast<uint32_t>(remembered.size()), static_cast<uint32_t>(ids.size() - first),
        static_cast<float>(std::min<double>(margin, FLT_MAX)), static_cast<float>(reach)};
    // Otherwise rounding may have decided now.
    if (entry.certain(score, word.size()) && segmented.emplace(word, entry).second)
      remembered.insert(remembered.end(), ids.begin() + first, ids.end());
  }
};

Result<std::vector<std::unique_ptr<Encoder>>>
SentencePiece::encoders(size_t count, SpecialTokens mode, std::span<const uint32_t> borders) const {
  if (mode == SpecialTokens::Parse)
    return Error{"a model of SentencePiece does not parse special tokens in a text; use "
                 "--special-tokens=text"};
  // No text becomes a control piece, and so the pieces that stand around documents are made some.
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
  std::string text, pending; // `pending`: the bytes of byte pieces
  const auto flush = [&] {
    for (std::string_view rest = pending; !rest.empty();) {
      const size_t length = validUtf8Length(rest);
      text += length > 0 ? rest.substr(0, length) : "\xef\xbf\xbd"; // U+FFFD for each other byte
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

} // namespace

Result<std::shared_ptr<const Tokenizer>> readSentencePieceModel(const std::string &path) {
  auto bytes = readTextFile(path, kMaximumBytes);
  if (!bytes)
    return bytes.error();
  auto model = parseSentencePieceModel(*bytes);
  if (!model)
    return Error{fmt::format("{}: {}", path, model.error().message)};
  auto tokenizer = std::make_shared<SentencePiece>(std::move(*model));
  if (Result<void> done = tokenizer->initialize(); !done)
    return Error{fmt::format("{}: {}", path, done.error().message)};
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

} // namespace lmc
