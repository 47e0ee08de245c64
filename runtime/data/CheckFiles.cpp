#include "runtime/data/CheckFiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace lmc {

namespace {

using Warnings = std::vector<std::string>;

Result<void> checkGivenOnce(const TokenFiles &files) {
  std::map<std::pair<uint64_t, uint64_t>, const TokenFile *> known;
  for (const TokenFile *file : files)
    if (auto [first, isNew] = known.emplace(file->identity(), file); !isNew)
      return userError("{} and {} are the same file, so an epoch would read its tokens twice; give "
                       "it once, or set data.allow_repeats = true",
                       first->second->path(), file->path());
  return {};
}

Result<void> checkVocabulary(const DataOptions &options, const TokenFile &file,
                             Warnings &warnings) {
  if (file.vocabulary() > options.vocabSize)
    return userError("{} was made for a vocabulary of {} tokens, beyond the {} of the model "
                     "(model.vocab_size); is this file of another tokenizer?",
                     file.path(), file.vocabulary(), options.vocabSize);
  if (file.vocabulary() > 0 || file.type() != TokenType::UInt16 || options.vocabSize <= 1u << 16 ||
      options.format != DataFormat::Auto)
    return {};
  const std::string cannot = fmt::format("{} has uint16 tokens, which cannot hold every id of a "
                                         "vocabulary of {} (model.vocab_size)",
                                         file.path(), options.vocabSize);
  if (file.format() == TokenFormat::Bare)
    return Error{cannot + "; without a header it may be of another type: set data.format to uint16 "
                          "or uint32"};
  warnings.push_back(cannot + "; is this file of another tokenizer?");
  return {};
}

Result<void> warnOfCopies(const TokenFiles &files, Warnings &warnings) {
  std::map<std::pair<uint64_t, uint64_t>, const TokenFile *> known; // key: token count, hash
  for (const TokenFile *file : files) {
    LMC_LET(print, file->fingerprint());
    auto [first, isNew] = known.emplace(std::pair(print->tokens, print->sampleHash), file);
    if (isNew)
      continue;
    warnings.push_back(fmt::format("{} and {} have the same tokens, which an epoch reads twice",
                                   first->second->path(), file->path()));
    return {};
  }
  return {};
}

std::string vocabularyText(const TokenFile &file) {
  return file.vocabulary() > 0 ? fmt::format("vocabulary {}", file.vocabulary())
                               : infoOf(file.type()).name;
}

// Warns if the tokens of two files come from different tokenizers. Files without a hash of their
// tokenizer are compared by vocabulary size and, in llm.c's format, by the type of the ids.
void warnOfTokenizers(const TokenFiles &files, Warnings &warnings) {
  std::map<TokenFormat, const TokenFile *> firsts; // the first file of each format
  const TokenFile *named = nullptr;                // the first file with a hash of its tokenizer
  for (const TokenFile *file : files) {
    const TokenFile &first = *firsts.emplace(file->format(), file).first->second;
    if (!named && file->tokenizer() != 0)
      named = file;
    if (named && file->tokenizer() != 0 && file->tokenizer() != named->tokenizer()) {
      warnings.push_back(fmt::format("{} and {} were made by different tokenizers, so that an id "
                                     "means another text in each; pack both with one --tokenizer",
                                     named->path(), file->path()));
      return;
    }
    if (file->vocabulary() == first.vocabulary() &&
        (file->format() != TokenFormat::LlmC || file->type() == first.type()))
      continue;
    warnings.push_back(fmt::format("{} ({}) and {} ({}) seem to be of different tokenizers",
                                   first.path(), vocabularyText(first), file->path(),
                                   vocabularyText(*file)));
    return;
  }
}

Result<void> checkDocuments(const DataOptions &options, const TokenFile &file, Warnings &warnings) {
  const bool isUsed = options.documentMask || options.documentLossMask;
  if (file.hasDocuments() || (!isUsed && options.endOfDocument < 0))
    return {};
  if (options.endOfDocument < 0)
    return userError(
        "{} does not say where its documents end, which {} needs; give the id of its "
        "end-of-document token (data.end_of_document), or make the file with: lmc-data pack",
        file.path(), options.documentKey);
  const auto end = static_cast<uint32_t>(options.endOfDocument);
  if (end >= options.vocabSize)
    return userError("data.end_of_document is {}, beyond the vocabulary of {} (model.vocab_size)",
                     end, options.vocabSize);
  LMC_LET(found, file.sampleHas(end));
  if (!*found)
    warnings.push_back(fmt::format(
        "{}: no token of a sample of it is {} (data.end_of_document); {}", file.path(), end,
        isUsed ? fmt::format("if this is the wrong id, {} has no effect on this file",
                             options.documentKey)
               : "is it the id of another tokenizer, or has the file no such tokens?"));
  return {};
}

Result<void> checkLengths(const DataOptions &options, const TokenFiles &files, Warnings &warnings) {
  const uint64_t block = options.shuffleBlock;
  const bool isRow = block == options.sequenceLength;
  const char *key = isRow ? "training.sequence_length" : "data.shuffle_block";
  auto isShort = [&](const TokenFile *file) { return blocksOf(*file, block) == 0; };
  const auto count = std::ranges::count_if(files, isShort);
  if (count == 0)
    return {};
  const TokenFile &first = **std::ranges::find_if(files, isShort);
  if (static_cast<size_t>(count) == files.size())
    return userError(
        "{}{} has {} tokens, too few for one {} of {} ({} {} + 1); give more text or a smaller {}",
        first.path(), count > 1 ? fmt::format(" (the first of {} files)", count) : "", first.size(),
        isRow ? "sample" : "block", block + 1, key, block, key);
  warnings.push_back(fmt::format("{} of {} files are not read, because they have fewer than {} "
                                 "tokens ({} + 1); the first is {}",
                                 count, files.size(), block + 1, key, first.path()));
  return {};
}

} // namespace

Result<std::vector<std::string>> checkFiles(const DataOptions &options, const TokenFiles &files) {
  Warnings warnings;
  for (const TokenFile *file : files) {
    LMC_TRY(checkVocabulary(options, *file, warnings));
    if (options.bestFit && !file->hasDocuments())
      return userError("{} does not say where its documents start, which data.packing = "
                       "\"best_fit\" needs; make the file with: lmc-data pack",
                       file->path());
    LMC_TRY(checkDocuments(options, *file, warnings));
  }
  if (!options.bestFit)
    LMC_TRY(checkLengths(options, files, warnings));
  return warnings;
}

Result<std::vector<std::string>> compareFiles(const DataOptions &options, const TokenFiles &files) {
  Warnings warnings;
  if (!options.allowRepeats) {
    LMC_TRY(checkGivenOnce(files));
    LMC_TRY(warnOfCopies(files, warnings));
  }
  warnOfTokenizers(files, warnings);
  return warnings;
}

} // namespace lmc
