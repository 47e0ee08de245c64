#include "runtime/data/DataSource.h"

#include "ground/support/File.h"
#include "ground/support/FileWait.h"
#include "runtime/data/CheckFiles.h"
#include "runtime/data/Permutation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <iterator>
#include <xxhash.h>

namespace lmc {

namespace {

const Error kNoFiles{"no token files are given; make one with: lmc-data pack"};

Error inKey(const std::string &key, Error error) {
  if (!key.empty())
    error.message = key + ": " + error.message;
  return error;
}

TokenFiles viewOf(const std::vector<std::unique_ptr<TokenFile>> &files) {
  TokenFiles views;
  for (const auto &file : files)
    views.push_back(file.get());
  return views;
}

void append(std::vector<std::string> &to, std::vector<std::string> more) {
  std::ranges::move(more, std::back_inserter(to));
}

// Returns the files that one entry of the list of paths stands for. If the entry has wildcard
// characters, but a file has exactly this name, the entry stands for this file only.
Result<std::vector<std::string>> expand(const std::string &entry,
                                        const std::string &baseDirectory) {
  std::string pattern = entry;
  if (!entry.starts_with('/') && !baseDirectory.empty())
    pattern = baseDirectory + (baseDirectory.ends_with('/') ? "" : "/") + entry;
  return expandPattern(pattern);
}

// startsByTable() and startsByEnds() fill `starts`, as DataSource::fill() does, for consecutive
// tokens of a file. These tokens are at the positions `first`, `first` + 1, ... of a row.

Error damagedTable(const TokenFile &file, uint64_t document, uint64_t start) {
  return userError("{}: document {} starts at token {}, before the one that it follows; the file "
                   "is damaged, pack or copy it again",
                   file.path(), document, start);
}

// Fills `starts` from the file's table of documents.
Result<void> startsByTable(const TokenFile &file, uint64_t begin, uint64_t length, int32_t first,
                           int32_t *starts) {
  LMC_LET(table, file.documentsBetween(begin, begin + length));
  uint64_t from = 0;
  auto startDocument = [&](uint64_t to) {
    std::fill(starts + from, starts + to, first + static_cast<int32_t>(from));
    from = to;
  };
  for (uint64_t number = table->first; uint64_t start : table->tokens) {
    if (start < begin + from) // the table is not sorted, but documentsBetween() needs a sorted one
      return damagedTable(file, number, start);
    startDocument(start - begin);
    ++number;
  }
  startDocument(length);
  return {};
}

// Fills `starts` by the end-of-document tokens.
void startsByEnds(const int32_t *tokens, uint64_t length, int32_t endOfDocument, int32_t first,
                  int32_t *starts) {
  for (uint64_t t = 0, from = 0; t < length; ++t) {
    starts[t] = first + static_cast<int32_t>(from);
    if (tokens[t] == endOfDocument)
      from = t + 1;
  }
}

// Finds documents' last tokens with the file's table, and sets their targets to kIgnoredTarget.
Result<void> maskLastsByTable(const TokenFile &file, uint64_t begin, uint64_t length,
                              int32_t *targets) {
  // If a document starts at token begin + length, token begin + length - 1 ends a document.
  LMC_LET(table, file.documentsBetween(begin, begin + length + 1));
  for (uint64_t number = table->first, last = begin; uint64_t start : table->tokens) {
    if (start < last || start <= begin)
      return damagedTable(file, number, start);
    targets[start - 1 - begin] = kIgnoredTarget;
    last = start;
    ++number;
  }
  return {};
}

} // namespace

static Result<PackedWindows> pack(const TokenFile &file, uint64_t window) {
  LMC_LET(starts, file.documentStarts(0, file.documents()));
  const auto wrong = std::ranges::is_sorted_until(*starts);
  if (wrong != starts->end())
    return damagedTable(file, wrong - starts->begin(), *wrong);
  if (starts->empty() || starts->front() != 0 || starts->back() > file.size())
    return userError(
        "{}: its documents are not those of its tokens; the file is damaged, pack or copy it again",
        file.path());
  return packBestFit(*starts, file.size(), window);
}

// Opens the files of a source and adds the source.
Result<void> DataSource::openSource(const SourceOptions &from) {
  Source source{.options = from, .files = {}, .packed = {}, .firstBlock = {}};
  source.seed =
      from.name.empty() ? options.seed : XXH64(from.name.data(), from.name.size(), options.seed);
  if (from.paths.empty())
    return kNoFiles;
  for (const std::string &entry : from.paths) {
    LMC_LET(paths, expand(entry, options.baseDirectory));
    for (const std::string &path : *paths) {
      LMC_LET(file, TokenFile::open(path, options.format));
      source.files.push_back(std::move(*file));
    }
  }
  LMC_LET(found, checkFiles(options, viewOf(source.files)));
  append(problems, std::move(*found));
  for (const auto &file : source.files) {
    source.firstBlock.push_back(source.blocks);
    source.tokens += file->size();
    if (!options.bestFit) {
      source.blocks += blocksOf(*file, options.shuffleBlock);
      continue;
    }
    LMC_LET(packed, pack(*file, options.shuffleBlock));
    source.blocks += packed->size();
    source.packed.push_back(std::move(*packed));
  }
  source.firstBlock.push_back(source.blocks);
  opened.push_back(std::move(source));
  return {};
}

Result<std::unique_ptr<DataSource>> DataSource::open(const DataOptions &options) {
  assert(options.sequenceLength > 0 && "checked with the configuration");
  std::unique_ptr<DataSource> source(new DataSource());
  source->options = options;
  uint64_t &block = source->options.shuffleBlock;
  if (block == 0)
    block = options.sequenceLength;
  if (block % options.sequenceLength != 0)
    return userError("training.sequence_length ({0}) does not divide data.shuffle_block ({1}), the "
                     "block in which the run shuffles; to read the data from its beginning in "
                     "another order, give --set data.shuffle_block={0} --change=data.shuffle_block",
                     options.sequenceLength, block);
  if (options.bestFit && block != options.sequenceLength)
    return userError(
        "data.packing = \"best_fit\" fills rows with whole documents, so data.shuffle_block ({0}) "
        "must be training.sequence_length ({1}); to read the data from its beginning in rows of "
        "{1} tokens, give --set data.shuffle_block={1} --change=data.shuffle_block",
        block, options.sequenceLength);
  if (options.sources.empty())
    return inKey(options.key, kNoFiles);
  std::vector<double> weights;
  TokenFiles files;
  for (const SourceOptions &from : options.sources) {
    if (auto opened = source->openSource(from); !opened)
      return inKey(from.key, opened.error());
    weights.push_back(from.weight);
    std::ranges::copy(viewOf(source->opened.back().files), std::back_inserter(files));
  }
  auto mixture = Mixture::make(weights);
  if (!mixture)
    return inKey(options.key, mixture.error());
  source->mixture = std::move(*mixture);
  auto warnings = compareFiles(source->options, files);
  if (!warnings)
    return inKey(options.key, warnings.error());
  append(source->problems, std::move(*warnings));
  return source;
}

uint64_t DataSource::samplesPerEpoch() const {
  uint64_t blocks = 0;
  for (const Source &source : opened)
    blocks += source.blocks;
  return blocks * (options.shuffleBlock / sequenceLength());
}
std::vector<SourceFacts> DataSource::sources() const {
  std::vector<SourceFacts> facts;
  for (const Source &source : opened) {
    const auto perPeriod = mixture.perPeriod(static_cast<uint32_t>(facts.size()));
    facts.push_back({.name = source.options.name,
                     .key = source.options.key,
                     .maxEpochs = source.options.maxEpochs,
                     .share = double(perPeriod) / double(mixture.period()),
                     .paths = {},
                     .tokens = source.tokens,
                     .tokensPerEpoch = source.blocks * options.shuffleBlock});
    if (options.bestFit)
      facts.back().padding = facts.back().tokensPerEpoch - source.tokens;
    for (const PackedWindows &windows : source.packed)
      facts.back().cutDocuments += windows.cut;
    for (const auto &file : source.files)
      facts.back().paths.push_back(file->path());
  }
  return facts;
}
Result<std::map<std::string, std::vector<FileFingerprint>>> DataSource::fingerprints() const {
  std::map<std::string, std::vector<FileFingerprint>> fingerprints;
  for (const Source &source : opened)
    for (const auto &file : source.files) {
      auto fingerprint = file->fingerprint();
      if (!fingerprint)
        return inKey(source.options.key, fingerprint.error());
      fingerprints[source.options.key].push_back(std::move(*fingerprint));
    }
  return fingerprints;
}
Result<std::vector<uint16_t>> DataSource::bytesOfTokens() const {
  std::optional<std::vector<uint16_t>> common;
  for (const Source &source : opened)
    for (const auto &file : source.files) {
      auto bytes = file->bytesOfTokens();
      if (!bytes)
        return inKey(source.options.key, bytes.error());
      if (common.value_or(*bytes) != *bytes)
        return std::vector<uint16_t>();
      common = std::move(*bytes);
    }
  return std::move(*common);
}
void DataSource::startAt(const std::vector<uint64_t> &starts) {
  for (size_t i = 0; i < starts.size(); ++i)
    opened[i].start = starts[i];
}
uint64_t DataSource::tokensRead(size_t source, uint64_t position) const {
  const uint64_t block = options.shuffleBlock, blocks = position / block;
  const uint64_t whole = mixture.count(static_cast<uint32_t>(source), blocks) * block;
  const bool inBlock = mixture(blocks).source == source;
  return opened[source].start + whole + (inBlock ? position % block : 0);
}

DataSource::Piece DataSource::pieceAt(uint64_t position, uint64_t most) const {
  const uint64_t block = options.shuffleBlock, inMixed = position % block;
  const Mixture::Place mixed = mixture(position / block);
  const Source &source = opened[mixed.source];
  // After startAt(), a block of the stream may begin in the middle of a block of the source.
  const uint64_t own = source.start + mixed.index * block + inMixed;
  const uint64_t epoch = own / block / source.blocks, offset = own % block;
  uint64_t place = own / block % source.blocks;
  if (options.shuffle)
    place = Permutation(source.blocks, source.seed, epoch)(place);
  // The block is in the last file with firstBlock <= place. A file without blocks has the same
  // firstBlock as the next file, and so is never chosen.
  const std::vector<uint64_t> &first = source.firstBlock;
  const size_t file = std::upper_bound(first.begin(), first.end(), place) - first.begin() - 1;
  const uint64_t length = std::min({block - inMixed, block - offset, most});
  Piece piece{&source, source.files[file].get(), (place - first[file]) * block + offset, length};
  if (!options.bestFit)
    return piece;
  const PackedWindows::Piece *found = source.packed[file].find(place - first[file], offset);
  piece.isPadding = !found;
  if (!found)
    return piece;
  const uint64_t in = offset - found->offset;
  piece.begin = found->begin + in;
  piece.length = std::min(length, found->length - in);
  piece.hasSuccessor = !found->endsDocument || in + piece.length < found->length;
  return piece;
}

Result<void> DataSource::fillPiece(const Piece &piece, int32_t *tokens, int32_t *targets) const {
  const TokenFile *file = piece.file;
  const uint64_t begin = piece.begin, length = piece.length;
  int32_t *last = targets + length - 1;
  if (piece.isPadding) {
    std::fill_n(tokens, length, 0);
    std::fill_n(targets, length, kIgnoredTarget);
    return {};
  }
  LMC_TRY(file->read(begin, length, tokens));
  if (piece.hasSuccessor)
    LMC_TRY(file->read(begin + length, 1, last));
  std::copy(tokens + 1, tokens + length, targets);
  auto beyond = [&](int32_t id) { return static_cast<uint32_t>(id) >= options.vocabSize; };
  uint64_t offset = std::find_if(tokens, tokens + length, beyond) - tokens;
  if (offset < length || (piece.hasSuccessor && beyond(*last)))
    return file->badId(begin + offset, fmt::format("{} (model.vocab_size); is this file of another "
                                                   "tokenizer?",
                                                   options.vocabSize));
  if (!piece.hasSuccessor)
    *last = kIgnoredTarget;
  return {};
}

Result<void> DataSource::fillStarts(const Piece &piece, const int32_t *tokens, int32_t first,
                                    int32_t *starts) const {
  if (options.bestFit) // all tokens of a piece belong to one document
    std::fill_n(starts, piece.length, first);
  else if (piece.file->hasDocuments())
    return startsByTable(*piece.file, piece.begin, piece.length, first, starts);
  else
    startsByEnds(tokens, piece.length, options.endOfDocument, first, starts);
  return {};
}

Result<void> DataSource::maskLasts(const Piece &piece, const int32_t *tokens,
                                   int32_t *targets) const {
  if (options.bestFit) // fillPiece() has masked the targets
    return {};
  if (piece.file->hasDocuments())
    return maskLastsByTable(*piece.file, piece.begin, piece.length, targets);
  for (uint64_t t = 0; t < piece.length; ++t)
    if (tokens[t] == options.endOfDocument)
      targets[t] = kIgnoredTarget;
  return {};
}

Result<void> DataSource::fill(uint64_t position, uint64_t rows, int32_t *tokens, int32_t *targets,
                              int32_t *starts) const {
  const uint64_t length = options.sequenceLength, total = rows * length;
  for (uint64_t at = 0; at < total;) {
    const uint64_t inRow = at % length;
    const Piece piece = pieceAt(position + at, length - inRow);
    const FileWait wait("reading", piece.file->path());
    auto filled = fillPiece(piece, tokens + at, targets + at);
    if (filled && starts && options.documentMask)
      filled = fillStarts(piece, tokens + at, static_cast<int32_t>(inRow), starts + at);
    if (filled && options.documentLossMask)
      filled = maskLasts(piece, tokens + at, targets + at);
    if (!filled)
      return inKey(piece.source->options.key, filled.error());
    at += piece.length;
  }
  return {};
}

std::pair<std::string, uint64_t> DataSource::locate(uint64_t position) const {
  const Piece piece = pieceAt(position, 1);
  return {piece.file->path(), piece.begin};
}

} // namespace lmc
