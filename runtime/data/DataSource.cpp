#include "runtime/data/DataSource.h"

#include "runtime/data/Permutation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <glob.h>
#include <unistd.h>

namespace lmc {

struct DataSource::State {
  DataOptions options;
  std::vector<std::unique_ptr<TokenFile>> files;
  std::vector<uint64_t> firstSample; // the first sample of each file; the last element is the total
  uint64_t samples = 0, tokens = 0;

  struct Window {
    const TokenFile *file;
    uint64_t begin; // position in the file of the first of sequenceLength + 1 tokens
  };
  Window window(uint64_t index) const;
  Result<void> fillStarts(const Window &window, const int32_t *tokens, int32_t *starts) const;
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
  bool isPattern = entry.find_first_of("*?[") != std::string::npos;
  if (!isPattern || access(pattern.c_str(), F_OK) == 0)
    return std::vector<std::string>{pattern};
  glob_t found{};
  int status = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (status != 0 || paths.empty())
    return Error{fmt::format("no file matches '{}'", pattern)};
  // Paths are sorted by bytes. glob(3) would sort by locale, and samples would then depend on it.
  std::sort(paths.begin(), paths.end());
  return paths;
}

Result<void> checkDocuments(const DataOptions &options, const TokenFile &file) {
  if (file.hasDocuments())
    return {};
  if (options.endOfDocument < 0)
    return inKey(options,
                 {fmt::format("{} does not say where its documents end, which "
                              "training.document_mask needs; give the id of its end-of-document "
                              "token (data.end_of_document), or make the file with: lmc-data pack",
                              file.path())});
  if (static_cast<uint32_t>(options.endOfDocument) >= options.vocabSize)
    return Error{fmt::format("data.end_of_document is {}, beyond the vocabulary of {} "
                             "(model.vocab_size)",
                             options.endOfDocument, options.vocabSize)};
  return {};
}

// Sets `starts` of the tokens [from, to) of a row to `from`, where their document begins.
void startDocument(int32_t *starts, uint64_t from, uint64_t to) {
  std::fill(starts + from, starts + to, static_cast<int32_t>(from));
}

// Fills `starts` for the `length` tokens from token `begin` of the file on, with the file's table
// of documents.
Result<void> startsByTable(const TokenFile &file, uint64_t begin, uint64_t length,
                           int32_t *starts) {
  auto table = file.documentsBetween(begin, begin + length);
  LMC_TRY(table);
  uint64_t from = 0;
  for (uint64_t number = table->first; uint64_t start : table->tokens) {
    if (start < begin + from) // the search is right only in a sorted table
      return Error{fmt::format("{}: document {} starts at token {}, before the one that it "
                               "follows; the file is damaged, pack or copy it again",
                               file.path(), number, start)};
    startDocument(starts, from, start - begin);
    from = start - begin;
    ++number;
  }
  startDocument(starts, from, length);
  return {};
}

void startsByEnds(const int32_t *tokens, uint64_t length, int32_t endOfDocument, int32_t *starts) {
  uint64_t from = 0;
  for (uint64_t t = 0; t < length; ++t)
    if (tokens[t] == endOfDocument) {
      startDocument(starts, from, t + 1);
      from = t + 1;
    }
  startDocument(starts, from, length);
}

} // namespace

DataSource::DataSource() : state(std::make_unique<State>()) {}
DataSource::~DataSource() = default;

Result<std::unique_ptr<DataSource>> DataSource::open(const DataOptions &options) {
  assert(options.sequenceLength > 0 && "checked with the configuration");
  std::unique_ptr<DataSource> source(new DataSource());
  State &s = *source->state;
  s.options = options;
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
  for (const auto &file : s.files) {
    if (file->vocabulary() > options.vocabSize)
      return inKey(options,
                   {fmt::format("{} was made for a vocabulary of {} tokens, beyond the {} of the "
                                "model (model.vocab_size); is this file of another tokenizer?",
                                file->path(), file->vocabulary(), options.vocabSize)});
    if (file->format() == TokenFormat::Bare && options.format == DataFormat::Auto &&
        options.vocabSize > 1u << 16)
      return inKey(options,
                   {fmt::format("{} has no header and is read as uint16, which cannot hold every id "
                                "of a vocabulary of {} (model.vocab_size); say what it is: set "
                                "data.format to uint16 or uint32",
                                file->path(), options.vocabSize)});
    if (options.documentMask)
      LMC_TRY(checkDocuments(options, *file));
    s.firstSample.push_back(s.samples);
    s.tokens += file->size();
    s.samples += (file->size() - 1) / options.sequenceLength;
  }
  s.firstSample.push_back(s.samples);
  if (s.samples == 0)
    return inKey(
        options,
        {fmt::format("{}{} has {} tokens, too few for one sample of {} (sequence_length "
                     "{} + 1); give more text or a shorter sequence_length",
                     s.files[0]->path(),
                     s.files.size() > 1 ? fmt::format(" (the first of {} files)", s.files.size())
                                        : "",
                     s.files[0]->size(), options.sequenceLength + 1, options.sequenceLength)});
  return source;
}

uint64_t DataSource::samplesPerEpoch() const { return state->samples; }
uint64_t DataSource::tokens() const { return state->tokens; }
uint64_t DataSource::sequenceLength() const { return state->options.sequenceLength; }
std::vector<std::string> DataSource::paths() const {
  std::vector<std::string> paths;
  for (const auto &file : state->files)
    paths.push_back(file->path());
  return paths;
}
bool DataSource::hasDocumentMask() const { return state->options.documentMask; }

DataSource::State::Window DataSource::State::window(uint64_t index) const {
  uint64_t place = index % samples;
  if (options.shuffle)
    place = Permutation(samples, options.seed, index / samples)(place);
  // The sample is in the last file whose first sample is at or before it. A file without samples
  // has the same first sample as the file after it and is therefore skipped.
  size_t file =
      std::upper_bound(firstSample.begin(), firstSample.end(), place) - firstSample.begin() - 1;
  return {files[file].get(), (place - firstSample[file]) * options.sequenceLength};
}

Result<void> DataSource::State::fillStarts(const Window &window, const int32_t *tokens,
                                           int32_t *starts) const {
  if (!window.file->hasDocuments()) {
    startsByEnds(tokens, options.sequenceLength, options.endOfDocument, starts);
    return {};
  }
  auto filled = startsByTable(*window.file, window.begin, options.sequenceLength, starts);
  return filled ? filled : inKey(options, filled.error());
}

Result<void> DataSource::fill(uint64_t first, uint64_t count, int32_t *tokens, int32_t *targets,
                              int32_t *starts) const {
  const uint64_t length = state->options.sequenceLength;
  for (uint64_t row = 0; row < count; ++row) {
    State::Window window = state->window(first + row);
    int32_t *rowTokens = tokens + row * length, *rowTargets = targets + row * length;
    for (auto [begin, row] : {std::pair{window.begin, rowTokens}, {window.begin + 1, rowTargets}})
      if (auto read = window.file->read(begin, length, row); !read)
        return inKey(state->options, read.error());
    auto beyond = [&](int32_t id) { return static_cast<uint32_t>(id) >= state->options.vocabSize; };
    // The sample's tokens are its first token followed by its targets.
    uint64_t offset = 0;
    if (!beyond(rowTokens[0]))
      offset = 1 + (std::find_if(rowTargets, rowTargets + length, beyond) - rowTargets);
    if (offset <= length)
      return inKey(state->options,
                   window.file->badId(window.begin + offset,
                                      fmt::format("{} (model.vocab_size); is this file of another "
                                                  "tokenizer?",
                                                  state->options.vocabSize)));
    if (starts && state->options.documentMask)
      LMC_TRY(state->fillStarts(window, rowTokens, starts + row * length));
  }
  return {};
}

std::pair<std::string, uint64_t> DataSource::locate(uint64_t index) const {
  State::Window window = state->window(index);
  return {window.file->path(), window.begin};
}

} // namespace lmc
