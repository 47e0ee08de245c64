#include "corpus/tokenizer/Pipeline.h"

#include "corpus/tokenizer/models/WordCache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace lmc {

namespace {

class Pipeline : public Tokenizer {
public:
  explicit Pipeline(PipelineParts given) : parts(std::move(given)) {}

  Result<void> initialize();
  Result<std::vector<std::unique_ptr<Encoder>>>
  encoders(size_t count, SpecialTokens mode, std::span<const uint32_t> borders) const override;
  Result<std::string> decode(std::span<const uint32_t> ids) const override;
  Result<std::vector<std::optional<uint64_t>>> bytesOfTokens() const override;
  std::optional<uint32_t> idOf(std::string_view token) const override;

private:
  // Returns the decoded text of pieces; without a decoder, the pieces with `gap` between them.
  Result<std::string> join(std::vector<std::string> pieces, const char *gap) const;
  // Returns the decoded text of a piece that is not the first: decoders may change the first one.
  Result<std::string> textOf(const std::string &piece) const;
  friend class PipelineEncoder;
  PipelineParts parts;
  TokenFinder plain;      // finds added tokens in a text before the normalizer changes it
  TokenFinder normalized; // finds the other added tokens in a normalized text
  std::unordered_map<uint32_t, std::string> addedText; // texts of added tokens, for decode()
  StringMap<uint32_t> addedIds;                        // from the text of an added token to its id
  IdSet special;                                       // ids of special added tokens
};

Result<void> Pipeline::initialize() {
  std::vector<AddedToken> plainTokens, normalizedTokens;
  std::set<std::string> plainSeen, normalizedSeen;
  uint32_t highest = std::max<size_t>(parts.model->vocabulary().pieces.size(), 1) - 1;
  for (AddedToken &token : parts.added) {
    std::string &pattern = token.pattern = token.content;
    if (token.normalized && parts.normalizer) {
      bool ignored = false;
      LMC_TRY(parts.normalizer(pattern, ignored));
    }
    addedText[token.id] = pattern;
    addedIds[token.content] = token.id;
    highest = std::max(highest, token.id);
    if (token.special)
      add(special, token.id);
    auto &seen = token.normalized ? normalizedSeen : plainSeen;
    if (pattern.empty() || !seen.insert(pattern).second)
      return userError("'{}' is {} after it is normalized", token.content,
                       pattern.empty() ? "empty" : "equal to another token");
    (token.normalized ? normalizedTokens : plainTokens).push_back(token);
  }
  plain = TokenFinder(std::move(plainTokens));
  normalized = TokenFinder(std::move(normalizedTokens));
  first = parts.before;
  last = parts.after;
  for (const auto *ids : {&first, &last})
    for (uint32_t id : *ids)
      highest = std::max(highest, id);
  limit = highest + 1;
  unk = parts.model->unknown();
  return {};
}

class PipelineEncoder : public Encoder {
public:
  PipelineEncoder(const Pipeline &pipeline, SpecialTokens mode, std::span<const uint32_t> given)
      : Encoder(mode, given), pipeline(pipeline) {
    if (mode == SpecialTokens::Parse)
      return;
    special = pipeline.special;
    for (uint32_t id : given) {
      add(special, id);
      if (!pipeline.addedText.contains(id))
        add(unadded, id);
    }
  }

protected:
  Result<void> encodeText(std::string_view text, std::vector<uint32_t> &ids) override {
    pipeline.plain.find(text, special, plainParts, spelledAt);
    LMC_TRY(countAll(text));
    for (const Part &part : plainParts) {
      if (part.id != kNoId)
        ids.push_back(part.id);
      else
        LMC_TRY(encodePlain(text.substr(part.begin, part.end - part.begin), part.begin == 0, ids));
    }
    return {};
  }

private:
  const Pipeline &pipeline;
  IdSet special; // text must not be encoded as these ids
  IdSet unadded; // the ids in `special` that belong to no added token
  WordCache cache;
  std::vector<Part> plainParts, normalizedParts;
  std::vector<size_t> spelledAt;
  std::vector<std::string_view> cuts;
  Words words;
  std::string changed;

  // Calls countSpelled() at each index in `spelledAt`, where a token of `text` stays ordinary text.
  Result<void> countAll(std::string_view text) {
    for (size_t at : spelledAt)
      LMC_TRY(countSpelled(text, at));
    spelledAt.clear();
    return {};
  }

  // Encodes text in which the TokenFinder `plain` has found no token.
  Result<void> encodePlain(std::string_view text, bool atBegin, std::vector<uint32_t> &ids) {
    if (pipeline.parts.normalizer) {
      changed = text;
      bool cutBegin = false;
      LMC_TRY(pipeline.parts.normalizer(changed, cutBegin));
      atBegin &= !cutBegin;
      text = changed;
    }
    if (pipeline.normalized.empty())
      return text.empty() ? Result<void>() : encodeNormalized(text, atBegin, ids);
    pipeline.normalized.find(text, special, normalizedParts, spelledAt);
    LMC_TRY(countAll(text));
    for (const Part &part : normalizedParts) {
      if (part.id != kNoId)
        ids.push_back(part.id);
      else
        LMC_TRY(encodeNormalized(text.substr(part.begin, part.end - part.begin),
                                 atBegin && part.begin == 0, ids));
    }
    return {};
  }

  // Encodes a normalized text in which neither TokenFinder has found a token.
  Result<void> encodeNormalized(std::string_view text, bool atBegin, std::vector<uint32_t> &ids) {
    if (!pipeline.parts.preTokenizer)
      return encodeWord(text, ids);
    words.storage.clear();
    words.views.assign(1, text);
    LMC_TRY(pipeline.parts.preTokenizer(words, atBegin));
    for (std::string_view word : words.views)
      LMC_TRY(encodeWord(word, ids));
    return {};
  }

  Result<void> encodeWord(std::string_view word, std::vector<uint32_t> &ids) {
    if (word.size() <= WordCache::kLongestWord)
      return encodeCached(word, ids);
    cuts.clear();
    pipeline.parts.model->cut(word, cuts);
    for (std::string_view part : cuts)
      LMC_TRY(encodeCached(part, ids));
    return {};
  }

  Result<void> encodeCached(std::string_view word, std::vector<uint32_t> &ids) {
    if (const auto known = cache.find(word)) {
      ids.insert(ids.end(), known->ids.begin(), known->ids.end());
      return {};
    }
    const size_t begin = ids.size();
    const Model &model = *pipeline.parts.model;
    LMC_TRY(model.encode(word, nullptr, ids));
    const auto within = [&](const IdSet &set) {
      return std::count_if(ids.begin() + begin, ids.end(),
                           [&](uint32_t id) { return contains(set, id); });
    };
    bool spells = false; // true if countSpelled() has counted a token of `unadded` in the word
    if (within(special) > 0) {
      for (auto left = within(unadded); left > 0; --left, spells = true)
        LMC_TRY(countSpelled(word, 0));
      ids.resize(begin);
      LMC_TRY(model.encode(word, &special, ids));
    }
    if (!spells) // Does not cache a word that spells a token, so that each occurrence is counted.
      cache.add(word, std::span(ids).subspan(begin));
    return {};
  }
};

Result<std::vector<std::unique_ptr<Encoder>>>
Pipeline::encoders(size_t count, SpecialTokens mode, std::span<const uint32_t> borders) const {
  std::vector<std::unique_ptr<Encoder>> result;
  for (size_t i = 0; i < count; ++i)
    result.push_back(std::make_unique<PipelineEncoder>(*this, mode, borders));
  return result;
}

Result<std::string> Pipeline::decode(std::span<const uint32_t> ids) const {
  std::vector<std::string> pieces;
  const std::vector<std::string> &known = parts.model->vocabulary().pieces;
  for (uint32_t id : ids) {
    if (auto added = addedText.find(id); added != addedText.end())
      pieces.push_back(added->second);
    else if (id < known.size())
      pieces.push_back(known[id]);
  }
  return join(std::move(pieces), " ");
}

Result<std::string> Pipeline::join(std::vector<std::string> pieces, const char *gap) const {
  if (parts.decoder)
    LMC_TRY(parts.decoder(pieces));
  return fmt::format("{}", fmt::join(pieces, parts.decoder ? "" : gap));
}

Result<std::string> Pipeline::textOf(const std::string &piece) const {
  LMC_LET(text, join({"a", piece}, ""));
  return text->substr(std::min<size_t>(text->size(), 1));
}

Result<std::vector<std::optional<uint64_t>>> Pipeline::bytesOfTokens() const {
  // Finds the decoder's kind by two pieces. A byte-level decoder turns the byte-level piece of a
  // space into a space. A decoder with byte fallback turns the byte piece of a newline into a
  // newline. A byte that is only a part of a character would not show the kind: it becomes U+FFFD.
  LMC_LET(space, textOf(byteCharacters()[' ']));
  LMC_LET(newline, textOf(bytePiece('\n')));
  const bool isByteLevel = *space == " ", hasBytePieces = *newline == "\n";
  std::vector<std::optional<uint64_t>> bytes(vocabulary());
  const std::vector<std::string> &pieces = parts.model->vocabulary().pieces;
  for (uint32_t id = 0; id < bytes.size(); ++id) {
    if (auto added = addedText.find(id); added != addedText.end()) {
      bytes[id] = contains(special, id) ? 0 : added->second.size();
    } else if (id >= pieces.size() || pieces[id].empty()) {
      bytes[id] = 0;
    } else if (isByteLevel) {
      bytes[id] = bytesOfCharacters(pieces[id]).value_or(pieces[id]).size();
    } else if (hasBytePieces && byteOfPiece(pieces[id]) >= 0) {
      bytes[id] = 1;
    } else {
      LMC_LET(text, textOf(pieces[id]));
      bytes[id] = text->size();
    }
  }
  if (unk && *unk < bytes.size())
    bytes[*unk].reset();
  return bytes;
}

std::optional<uint32_t> Pipeline::idOf(std::string_view token) const {
  uint32_t id = idIn(addedIds, token);
  if (id == kNoId)
    id = idIn(parts.model->vocabulary().ids, token);
  return id == kNoId ? std::nullopt : std::optional(id);
}

} // namespace

Result<std::shared_ptr<const Tokenizer>> makePipeline(PipelineParts parts) {
  auto pipeline = std::make_shared<Pipeline>(std::move(parts));
  LMC_TRY(pipeline->initialize());
  return std::shared_ptr<const Tokenizer>(std::move(pipeline));
}

} // namespace lmc
