#include "runtime/tokenizer/Tokenizer.h"

#include "runtime/tokenizer/Pipeline.h"

#include <fmt/format.h>

namespace lmc {

Result<SpecialTokens> parseSpecialTokens(std::string_view name) {
  if (name == "text")
    return SpecialTokens::Text;
  if (name == "parse")
    return SpecialTokens::Parse;
  if (name == "error")
    return SpecialTokens::Error;
  return Error{fmt::format("'{}' is none of text, parse and error", name)};
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::open(const std::string &path) {
  if (path.ends_with(".json"))
    return readTokenizerJson(path);
  if (path.ends_with(".model"))
    return readSentencePieceModel(path);
  return Error{fmt::format("{}: expected a tokenizer.json, or a .model of SentencePiece", path)};
}

} // namespace lmc
