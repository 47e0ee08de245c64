#include "corpus/tokenizer/models/Model.h"
#include "corpus/tokenizer/models/Trie.h"
#include "corpus/tokenizer/unicode/Utf8.h"

#include <algorithm>
#include <array>
#include <limits>

namespace lmc {

namespace {

constexpr double kBelowLowestScore = 10; // unknown characters score this far below all pieces

class Unigram : public Model {
public:
  explicit Unigram(UnigramOptions given) : options(std::move(given)) {
    for (uint32_t id = 0; id < options.pieces.size(); ++id) {
      const auto &[piece, score] = options.pieces[id];
      pieces.ids[piece] = id; // equal pieces get the id of the last one
      pieces.pieces.push_back(piece);
      lowest = std::min(lowest, score);
    }
    for (const auto &[piece, id] : pieces.ids)
      if (!piece.empty())
        trie.add(piece, id);
    trie.finish();
    for (int byte = 0; byte < 256; ++byte)
      byteIds[byte] = idIn(pieces.ids, bytePiece(byte));
  }

  Result<void> encode(std::string_view word, const IdSet *forbidden,
                      std::vector<uint32_t> &ids) const override;
  const Vocabulary &vocabulary() const override { return pieces; }
  std::optional<uint32_t> unknown() const override { return options.unknown; }
  size_t size() const override { return options.pieces.size(); }

private:
  UnigramOptions options;
  Vocabulary pieces;
  Trie trie;
  double lowest = std::numeric_limits<double>::infinity();
  std::array<uint32_t, 256> byteIds;

  static Error unknownText(std::string_view text) {
    return userError("{} is unknown, and the model has no unk_id", inQuotes(text));
  }
  Result<void> appendPiece(std::string_view text, const IdSet *forbidden,
                           std::vector<uint32_t> &ids) const;
};

// Appends the ids of one piece of the best segmentation. `text` is the piece's text.
Result<void> Unigram::appendPiece(std::string_view text, const IdSet *forbidden,
                                  std::vector<uint32_t> &ids) const {
  if (uint32_t id = idIn(pieces.ids, text);
      id != kNoId && !(forbidden && contains(*forbidden, id))) {
    ids.push_back(id);
    return {};
  }
  const auto idOf = [&](char byte) { return byteIds[static_cast<uint8_t>(byte)]; };
  if (options.byteFallback &&
      std::all_of(text.begin(), text.end(), [&](char byte) { return idOf(byte) != kNoId; })) {
    for (char byte : text)
      ids.push_back(idOf(byte));
    return {};
  }
  if (!options.unknown)
    return unknownText(text);
  ids.push_back(*options.unknown);
  return {};
}

Result<void> Unigram::encode(std::string_view word, const IdSet *forbidden,
                             std::vector<uint32_t> &ids) const {
  // The best segmentation of a word's prefix. If scores are equal, the longest last piece wins.
  struct Best {
    double score = 0;
    size_t begin = SIZE_MAX;
    uint32_t id = 0;
  };
  thread_local std::vector<Best> best;
  best.assign(word.size() + 1, {});
  const double unknownScore = lowest - kBelowLowestScore;
  for (size_t begin = 0; begin < word.size();) {
    const double before = best[begin].score;
    const size_t character = utf8Length(word[begin]);
    bool single = false; // true if the character at `begin` is a piece
    const auto offer = [&](size_t end, double score, uint32_t id) {
      Best &target = best[end];
      if (target.begin == SIZE_MAX || score > target.score)
        target = {score, begin, id};
    };
    uint32_t node = 0;
    for (size_t end = begin; end < word.size();) {
      node = trie.child(node, word[end++]);
      if (node == 0)
        break;
      const uint32_t id = trie.value(node);
      if (id == kNoId || (forbidden && contains(*forbidden, id)))
        continue;
      offer(end, options.pieces[id].second + before, id);
      single |= end - begin == character;
    }
    if (!single) {
      if (!options.unknown)
        return unknownText(word.substr(begin, character));
      offer(begin + character, unknownScore + before, *options.unknown);
    }
    begin += character;
  }
  // Collects the pieces. Neighbouring unknown characters become one piece.
  std::vector<std::string_view> found;
  size_t unknownEnd = 0; // end of the run of unknown characters; 0: no run
  for (size_t end = word.size(); end > 0; end = best[end].begin) {
    const size_t begin = best[end].begin;
    if (options.unknown && best[end].id == *options.unknown) {
      unknownEnd = std::max(unknownEnd, end);
      if (begin == 0)
        found.push_back(word.substr(0, unknownEnd));
      continue;
    }
    if (unknownEnd > 0)
      found.push_back(word.substr(end, unknownEnd - end));
    unknownEnd = 0;
    found.push_back(word.substr(begin, end - begin));
  }
  for (auto piece = found.rbegin(); piece != found.rend(); ++piece)
    LMC_TRY(appendPiece(*piece, forbidden, ids));
  return {};
}

} // namespace

Result<std::unique_ptr<Model>> makeUnigram(UnigramOptions options) {
  if (options.unknown && *options.unknown >= options.pieces.size())
    return userError("unk_id {} is not in the vocabulary", *options.unknown);
  return std::unique_ptr<Model>(std::make_unique<Unigram>(std::move(options)));
}

} // namespace lmc
