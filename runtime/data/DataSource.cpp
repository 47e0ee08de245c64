#include "runtime/data/DataSource.h"

#include "runtime/data/CheckFiles.h"
#include "runtime/data/Permutation.h"
#include "runtime/support/File.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace lmc {

struct DataSource::State {
  DataOptions options;
  std::vector<std::unique_ptr<TokenFile>> files;
  std::vector<uint64_t> firstBlock; // the first block of each file; the last element is the total
  uint64_t blocks = 0, tokens = 0;
  std::vector<std::string> warnings;

  // Consecutive tokens of a file.
  struct Piece {
    const TokenFile *file;
    uint64_t begin, length;
  };
  // Returns the tokens of the stream from `position` to the end of their block, at most `most`.
  Piece pieceAt(uint64_t position, uint64_t most) const;
  Result<void> fillPiece(const Piece &piece, int32_t *tokens, int32_t *targets) const;
  Result<void> fillStarts(const Piece &piece, const int32_t *tokens, int32_t first,
                          int32_t *starts) const;
};

namespace {

Error inKey(const DataOptions &options, Error error) {
  if (!options.key.empty())
    error.message = options.key + ": " + error.message;
  return error;
}

// Returns the files that one entry of the list of paths names. An entry that is the name of an
// existing file means that file, even if the name contains wildcard characters.
Result<std::vector<std::string>> expand(const std::string &entry,
                                        const std::string &baseDirectory) {
  std::string pattern = entry;
  if (!entry.starts_with('/') && !baseDirectory.empty())
    pattern = baseDirectory + (baseDirectory.ends_with('/') ? "" : "/") + entry;
  return expandPattern(pattern);
}

// The two functions below fill `starts` for the tokens of a piece. Its first token is at position
// `first` of the row.

// With the file's table of documents.
Result<void> startsByTable(const TokenFile &file, uint64_t begin, uint64_t length, int32_t first,
                           int32_t *starts) {
  auto table = file.documentsBetween(begin, begin + length);
  LMC_TRY(table);
  uint64_t from = 0;
  auto startDocument = [&](uint64_t to) {
    std::fill(starts + from, starts + to, first + static_cast<int32_t>(from));
    from = to;
  };
  for (uint64_t number = table->first; uint64_t start : table->tokens) {
    if (start < begin + from) // the search is right only in a sorted table
      return Error{fmt::format("{}: document {} starts at token {}, before the one that it "
                               "follows; the file is damaged, pack or copy it again",
                               file.path(), number, start)};
    startDocument(start - begin);
    ++number;
  }
  startDocument(length);
  return {};
}

// With the end-of-document tokens.
void startsByEnds(const int32_t *tokens, uint64_t length, int32_t endOfDocument, int32_t first,
                  int32_t *starts) {
  for (uint64_t t = 0, from = 0; t < length; ++t) {
    starts[t] = first + static_cast<int32_t>(from);
    if (tokens[t] == endOfDocument)
      from = t + 1;
  }
}

} // namespace

DataSource::DataSource() : state(std::make_unique<State>()) {}
DataSource::~DataSource() = default;

Result<std::unique_ptr<DataSource>> DataSource::open(const DataOptions &options) {
  assert(options.sequenceLength > 0 && "checked with the configuration");
  std::unique_ptr<DataSource> source(new DataSource());
  State &s = *source->state;
  s.options = options;
  uint64_t &block = s.options.shuffleBlock;
  if (block == 0)
    block = options.sequenceLength;
  if (block % options.sequenceLength != 0)
    return Error{fmt::format("training.sequence_length ({0}) does not divide data.shuffle_block "
                             "({1}), the block in which the run shuffles; to read the data from its "
                             "beginning in another order, give --set data.shuffle_block={0} "
                             "--change=data.shuffle_block",
                             options.sequenceLength, block)};
  if (options.paths.empty())
    return inKey(options, {"no token files are given; make one with: lmc-data pack"});
  for (const std::string &entry : options.paths) {
    auto paths = expand(entry, options.baseDirectory);
    if (!paths)
      return inKey(options, paths.error());
    for (const std::string &path : *paths) {
      auto file = TokenFile::open(path, options.format);
      if (!file)
        return inKey(options, file.error());
      s.files.push_back(std::move(*file));
    }
  }
  auto warnings = checkFiles(s.options, s.files);
  if (!warnings)
    return inKey(options, warnings.error());
  s.warnings = std::move(*warnings);
  for (const auto &file : s.files) {
    s.firstBlock.push_back(s.blocks);
    s.tokens += file->size();
    s.blocks += blocksOf(*file, block);
  }
  s.firstBlock.push_back(s.blocks);
  return source;
}

uint64_t DataSource::tokens() const { return state->tokens; }
uint64_t DataSource::tokensPerEpoch() const { return state->blocks * state->options.shuffleBlock; }
uint64_t DataSource::sequenceLength() const { return state->options.sequenceLength; }
std::vector<std::string> DataSource::paths() const {
  std::vector<std::string> paths;
  for (const auto &file : state->files)
    paths.push_back(file->path());
  return paths;
}
const std::vector<std::string> &DataSource::warnings() const { return state->warnings; }
Result<std::vector<FileFingerprint>> DataSource::fingerprint() const {
  std::vector<FileFingerprint> fingerprints;
  for (const auto &file : state->files) {
    auto fingerprint = file->fingerprint();
    if (!fingerprint)
      return inKey(state->options, fingerprint.error());
    fingerprints.push_back(std::move(*fingerprint));
  }
  return fingerprints;
}
bool DataSource::hasDocumentMask() const { return state->options.documentMask; }

DataSource::State::Piece DataSource::State::pieceAt(uint64_t position, uint64_t most) const {
  const uint64_t block = options.shuffleBlock, index = position / block, offset = position % block;
  uint64_t place = index % blocks;
  if (options.shuffle)
    place = Permutation(blocks, options.seed, index / blocks)(place);
  // The block is in the last file whose first block is at or before it. A file without blocks has
  // the same first block as the file after it and is therefore skipped.
  size_t file =
      std::upper_bound(firstBlock.begin(), firstBlock.end(), place) - firstBlock.begin() - 1;
  return {files[file].get(), (place - firstBlock[file]) * block + offset,
          std::min(block - offset, most)};
}

Result<void> DataSource::State::fillPiece(const Piece &piece, int32_t *tokens,
                                          int32_t *targets) const {
  const auto &[file, begin, length] = piece;
  int32_t *last = targets + length - 1;
  LMC_TRY(file->read(begin, length, tokens));
  LMC_TRY(file->read(begin + length, 1, last));
  std::copy(tokens + 1, tokens + length, targets);
  auto beyond = [&](int32_t id) { return static_cast<uint32_t>(id) >= options.vocabSize; };
  uint64_t offset = std::find_if(tokens, tokens + length, beyond) - tokens;
  if (offset < length || beyond(*last))
    return file->badId(begin + offset, fmt::format("{} (model.vocab_size); is this file of another "
                                                   "tokenizer?",
                                                   options.vocabSize));
  return {};
}

Result<void> DataSource::State::fillStarts(const Piece &piece, const int32_t *tokens, int32_t first,
                                           int32_t *starts) const {
  if (piece.file->hasDocuments())
    return startsByTable(*piece.file, piece.begin, piece.length, first, starts);
  startsByEnds(tokens, piece.length, options.endOfDocument, first, starts);
  return {};
}

Result<void> DataSource::fill(uint64_t position, uint64_t rows, int32_t *tokens, int32_t *targets,
                              int32_t *starts) const {
  const uint64_t length = state->options.sequenceLength, total = rows * length;
  for (uint64_t at = 0; at < total;) {
    const uint64_t inRow = at % length;
    const State::Piece piece = state->pieceAt(position + at, length - inRow);
    auto filled = state->fillPiece(piece, tokens + at, targets + at);
    if (filled && starts && state->options.documentMask)
      filled = state->fillStarts(piece, tokens + at, static_cast<int32_t>(inRow), starts + at);
    if (!filled)
      return inKey(state->options, filled.error());
    at += piece.length;
  }
  return {};
}

std::pair<std::string, uint64_t> DataSource::locate(uint64_t position) const {
  const State::Piece piece = state->pieceAt(position, 1);
  return {piece.file->path(), piece.begin};
}

} // namespace lmc
