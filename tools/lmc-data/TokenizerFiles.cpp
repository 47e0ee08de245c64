#include "tools/lmc-data/TokenizerFiles.h"

#include "ground/support/File.h"
#include "runtime/checkpoint/RunTokenizer.h"

#include <xxhash.h>

#include <filesystem>

namespace lmc {

namespace fs = std::filesystem;

// Files beside the tokenizer's file that contain more facts about the tokenizer.
static constexpr const char *kBeside[] = {"tokenizer_config.json", "special_tokens_map.json",
                                          "chat_template.jinja", "generation_config.json"};

static constexpr uint64_t kMaximumTokenizerBytes = 1 << 30;

static std::string partialOf(const std::string &tokens) {
  return tokenizerFolder(tokens) + ".partial";
}

Result<uint64_t> tokenizerHash(const std::string &file) {
  LMC_LET(text, readTextFile(file, kMaximumTokenizerBytes));
  return XXH64(text->data(), text->size(), 0);
}

Result<TokenizerCopy> TokenizerCopy::make(const std::string &file, const std::string &tokens) {
  TokenizerCopy made(tokens);
  const fs::path source = file;
  const std::string partial = partialOf(tokens);
  LMC_TRY(removeTree(partial));
  LMC_TRY(makeFolders(partial));
  const auto copy = [&](const fs::path &from, const std::string &name) -> Result<void> {
    LMC_LET(text, readTextFile(from.string(), kMaximumTokenizerBytes));
    return writeTextFile(partial + "/" + name, *text);
  };
  LMC_TRY(copy(source, kTokenizerNames[source.extension() == ".json" ? 0 : 1]));
  for (const char *name : kBeside)
    if (const fs::path beside = source.parent_path() / name; exists(beside.string()))
      LMC_TRY(copy(beside, name));
  LMC_TRY(syncFolder(partial));
  return made;
}

TokenizerCopy::~TokenizerCopy() {
  if (!tokens.empty())
    (void)removeTree(partialOf(tokens));
}

Rename withoutTokenizer(const std::string &tokens) { return {"", tokenizerFolder(tokens)}; }

Rename TokenizerCopy::release() {
  Rename rename{partialOf(tokens), tokenizerFolder(tokens)};
  tokens.clear();
  return rename;
}

} // namespace lmc
