#include "tools/lmc-data/input/DocumentTokens.h"

#include "ground/support/File.h"
#include "ground/support/Json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

namespace lmc {

namespace {

constexpr uint64_t kMaximumVocabularyBytes = 256 << 20;

// What the user, a file or the tokenizer says about one border token (--bos or --eod).
struct Answer {
  bool given = false;         // false: nothing is said
  std::optional<uint32_t> id; // the token's id; nullopt, if `given`: no token is to be written
  bool stops = false;         // true: the tokenizer's own tokens at this border are left out, too
};

Result<Answer> answerOf(const Tokenizer &tokenizer, const std::string &place,
                        const std::string &text) {
  if (auto id = tokenizer.idOf(text))
    return Answer{true, id};
  return userError("{}: the tokenizer has no token '{}'", place, text);
}

Result<Answer> answerOfUser(const Tokenizer &tokenizer, const char *option,
                            const std::string &text) {
  if (text == "none")
    return Answer{true, std::nullopt, true};
  if (text.find_first_not_of("0123456789") != text.npos || text.empty())
    return answerOf(tokenizer, option, text);
  if (text.size() > 9 || std::stoul(text) >= tokenizer.vocabulary())
    return userError("{}={}: is beyond the vocabulary of {} ids", option, text,
                     tokenizer.vocabulary());
  return Answer{true, static_cast<uint32_t>(std::stoul(text))};
}

// Looks for the token `key`, such as "bos_token", in the files beside the tokenizer. The answer is
// "none" if a file sets the key `adds`, such as "add_bos_token", to false. `adds` may be "".
Result<Answer> answerOfFiles(const Tokenizer &tokenizer, const std::string &folder,
                             const std::string &key, const std::string &adds) {
  for (const char *name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const std::string path = folder + "/" + name;
    if (!exists(path))
      continue;
    LMC_LET(file, readJsonObject(path, kMaximumVocabularyBytes));
    if (!adds.empty() && file->contains(adds) && (*file)[adds] == false)
      return Answer{true, std::nullopt, true};
    auto token = file->find(key);
    if (token == file->end())
      continue;
    if (token->is_object() && token->contains("content"))
      token = token->find("content");
    if (token->is_null())
      return Answer{true, std::nullopt};
    if (!token->is_string())
      return userError("{}: {}: expected a token, found {}", path, key, token->type_name());
    return answerOf(tokenizer, path + ": " + key, token->get<std::string>());
  }
  return Answer{};
}

} // namespace

Result<DocumentTokens> documentTokens(const Tokenizer &tokenizer, const std::string &path,
                                      const std::optional<std::string> &bos,
                                      const std::optional<std::string> &eod) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty())
    folder = ".";
  const bool hasConfig = exists(folder + "/tokenizer_config.json");
  LMC_LET(end, eod ? answerOfUser(tokenizer, "--eod", *eod)
                   : answerOfFiles(tokenizer, folder, "eos_token", ""));
  LMC_LET(begin, bos ? answerOfUser(tokenizer, "--bos", *bos)
                     : answerOfFiles(tokenizer, folder, "bos_token", "add_bos_token"));
  if (!end->given && tokenizer.endOfDocument())
    *end = {true, tokenizer.endOfDocument()};
  if (!begin->given && tokenizer.beginOfDocument())
    *begin = {true, tokenizer.beginOfDocument()};
  // If the bos token is unknown, none is written in two cases: the tokenizer itself adds tokens
  // before a document, or tokenizer_config.json exists but names no bos_token. Else it is an error.
  if (!begin->given && (!tokenizer.before().empty() || hasConfig))
    begin->given = true;
  if (!end->given || (!eod && !end->id))
    return userError(
        "{}: nothing says which token ends a document; give --eod=TOKEN, --eod=ID or --eod=none",
        path);
  if (!begin->given)
    return userError(
        "{}: nothing says which token begins a document; give --bos=TOKEN, --bos=ID or --bos=none",
        path);

  DocumentTokens tokens;
  if (!begin->stops)
    tokens.before = tokenizer.before();
  if (!end->stops)
    tokens.after = tokenizer.after();
  tokens.endOfDocument = end->id;
  const auto has = [](const std::vector<uint32_t> &ids, std::optional<uint32_t> id) {
    return id && std::find(ids.begin(), ids.end(), *id) != ids.end();
  };
  if (begin->id && begin->id != end->id && !has(tokens.before, begin->id))
    tokens.before.insert(tokens.before.begin(), *begin->id);
  // `between` stays empty if the tokenizer itself adds the end-of-document token to documents.
  if (!has(tokens.before, end->id) && !has(tokens.after, end->id))
    tokens.between = end->id;
  return tokens;
}

} // namespace lmc
