#include "runtime/text/TextCodec.h"

#include "runtime/checkpoint/RunTokenizer.h"

#include <fmt/format.h>

#include <algorithm>

namespace lmc {

// Returns the ids that stand before each document. These are the tokenizer's ids that begin a
// document, if the file starts with them; else `endOfDocument`, unless it is -1.
static Result<std::vector<int32_t>> idsBefore(const TokenFile &file, const Tokenizer *tokenizer,
                                              int32_t endOfDocument) {
  std::vector<uint32_t> begin;
  if (tokenizer) {
    begin = tokenizer->before();
    if (begin.empty() && tokenizer->beginOfDocument())
      begin = {*tokenizer->beginOfDocument()};
  }
  if (!begin.empty() && file.size() >= begin.size()) {
    std::vector<int32_t> found(begin.size());
    LMC_TRY(file.read(0, found.size(), found.data()));
    if (std::ranges::equal(found, begin, {}, {}, [](uint32_t id) { return int32_t(id); }))
      return found;
  }
  return endOfDocument < 0 ? std::vector<int32_t>() : std::vector<int32_t>{endOfDocument};
}

Result<TextCodec> TextCodec::open(const std::string &tokens, DataFormat format,
                                  int32_t endOfDocument) {
  LMC_LET(opened, TokenFile::open(tokens, format));
  const TokenFile &file = **opened;
  TextCodec codec;
  codec.end = file.endOfDocument() >= 0 ? file.endOfDocument() : endOfDocument;
  if (const auto folder = tokenizerOf(tokens)) {
    LMC_LET(path, tokenizerFile(*folder));
    LMC_SET(codec.tokenizer, Tokenizer::open(*path));
    LMC_SET(codec.encoders, codec.tokenizer->encoders(1, SpecialTokens::Text));
  } else if (file.tokenizer() != kBytesAsTokens) {
    return userError("{}: no tokenizer is known, so that no text can be generated; put the files "
                     "of the tokenizer into {}, or leave out generation.prompts",
                     tokens, tokenizerFolder(tokens));
  }
  LMC_SET(codec.first, idsBefore(file, codec.tokenizer.get(), codec.end));
  return codec;
}

Result<std::vector<int32_t>> TextCodec::encode(std::string_view text) {
  std::vector<int32_t> ids = first;
  if (tokenizer) {
    std::vector<uint32_t> encoded;
    LMC_TRY(encoders.front()->encode(text, encoded));
    ids.insert(ids.end(), encoded.begin(), encoded.end());
  } else {
    for (const char c : text)
      ids.push_back(static_cast<unsigned char>(c));
  }
  if (ids.empty())
    return Error{"an empty prompt, and the training data has no token that begins or ends a "
                 "document"};
  return ids;
}

Result<std::string> TextCodec::textOf(std::span<const int32_t> ids) const {
  if (tokenizer) {
    const std::vector<uint32_t> unsignedIds(ids.begin(), ids.end());
    return tokenizer->decode(unsignedIds);
  }
  std::string text;
  for (const int32_t id : ids)
    if (id >= 0 && id < 256)
      text += static_cast<char>(id);
  return text;
}

Result<std::string> TextCodec::decode(std::span<const int32_t> before,
                                      std::span<const int32_t> ids) const {
  // Decodes `before` and `ids` together: a tokenizer may drop a space at the start of a text.
  std::vector<int32_t> all(before.begin(), before.end());
  all.insert(all.end(), ids.begin(), ids.end());
  LMC_LET(start, textOf(before));
  LMC_LET(whole, textOf(all));
  if (whole->starts_with(*start))
    return whole->substr(start->size());
  return textOf(ids);
}

} // namespace lmc
