#include "corpus/tokenizer/Tokenizer.h"

#include "corpus/tokenizer/Pipeline.h"

#include "corpus/tokenizer/unicode/Utf8.h"

namespace lmc {

Result<SpecialTokens> parseSpecialTokens(std::string_view name) {
  if (name == "text")
    return SpecialTokens::Text;
  if (name == "parse")
    return SpecialTokens::Parse;
  if (name == "error")
    return SpecialTokens::Error;
  return userError("'{}' is none of text, parse and error", name);
}

Encoder::Encoder(SpecialTokens mode, std::span<const uint32_t> given) : mode(mode) {
  for (uint32_t id : given)
    add(borders, id);
}

Result<void> Encoder::encode(std::string_view text, std::vector<uint32_t> &ids) {
  const size_t begin = ids.size();
  LMC_TRY(encodeText(text, ids));
  if (mode == SpecialTokens::Parse)
    return {};
  for (size_t i = begin; i < ids.size(); ++i)
    if (contains(borders, ids[i]))
      return userError("the text has a character whose only token is id {}, which stands around "
                       "documents; give another token as --bos or --eod",
                       ids[i]);
  return {};
}

Result<void> Encoder::countSpelled(std::string_view text, size_t at) {
  if (mode == SpecialTokens::Error)
    return userError("{} spells a special token; --special-tokens=text makes text of it",
                     inQuotes(text.substr(at)));
  ++places;
  return {};
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::open(const std::string &path) {
  if (path.ends_with(".json"))
    return readTokenizerJson(path);
  if (path.ends_with(".model"))
    return readSentencePieceModel(path);
  return userError("{}: expected a tokenizer.json, or a .model of SentencePiece", path);
}

} // namespace lmc
