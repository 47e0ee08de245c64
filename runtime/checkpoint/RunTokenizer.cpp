#include "runtime/checkpoint/RunTokenizer.h"

#include "ground/support/File.h"
#include "ground/support/Number.h"
#include "runtime/data/TokenFile.h"

#include <fmt/format.h>

#include <filesystem>

namespace lmc {

std::string tokenizerFolder(const std::string &tokens) { return tokens + ".tokenizer"; }

std::optional<std::string> tokenizerOf(const std::string &tokens) {
  const std::string folder = tokenizerFolder(tokens);
  return exists(folder) ? std::optional(folder) : std::nullopt;
}

Result<std::string> tokenizerFile(const std::string &path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored))
    return path;
  for (const char *name : kTokenizerNames)
    if (exists(path + "/" + name))
      return path + "/" + name;
  return userError("{}: no tokenizer.json and no tokenizer.model there", path);
}

// Returns data.end_of_document if it is set. Otherwise reads it from the first token file, if any.
static std::optional<uint32_t> endOfDocument(const RunIdentity &run) {
  auto text = [&](const char *key) {
    auto found = run.settings.find(key);
    return found == run.settings.end() ? "" : found->second.value;
  };
  if (const auto id = parseWhole<int64_t>(text("data.end_of_document")); id && *id >= 0)
    return static_cast<uint32_t>(*id);
  auto format = parseDataFormat(text("data.format"));
  const std::vector<FileFingerprint> files = run.trainData();
  if (files.empty() || !format)
    return std::nullopt;
  auto file = TokenFile::open(files.front().path, *format);
  if (!file || (*file)->endOfDocument() < 0)
    return std::nullopt;
  return static_cast<uint32_t>((*file)->endOfDocument());
}

Result<void> addTokenizer(const RunIdentity &run, const std::string &tokenizer,
                          ExportOptions &options) {
  if (!options.eosTokenId)
    options.eosTokenId = endOfDocument(run);
  // A training document begins right after the token that ends the previous document.
  if (!options.bosTokenId)
    options.bosTokenId = options.eosTokenId;
  const std::vector<FileFingerprint> trained = run.trainData();
  std::string place = tokenizer;
  if (place.empty() && !trained.empty())
    place = tokenizerOf(trained.front().path).value_or("");
  if (place.empty())
    return {};
  LMC_SET(options.files, tokenizerFiles(place));
  return {};
}

} // namespace lmc
