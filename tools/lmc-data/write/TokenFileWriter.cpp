#include "tools/lmc-data/write/TokenFileWriter.h"

#include "ground/support/File.h"
#include "runtime/data/MegatronIndex.h"
#include "runtime/data/TokenFormats.h"

#define XXH_STATIC_LINKING_ONLY // defines XXH64_state_t, whose size save() needs
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace lmc {

namespace {

constexpr size_t kBufferBytes = 1 << 20;
// Megatron's rule: ids are uint16 if the vocabulary is smaller than kMegatronWide, else int32.
constexpr uint32_t kMegatronWide = 65500;

// A file to which data is appended through a buffer.
struct Appended {
  int descriptor = -1;
  uint64_t written = 0; // bytes in the file, without those in `buffer`
  std::vector<char> buffer;

  ~Appended() {
    if (descriptor >= 0)
      close(descriptor);
  }
};

} // namespace

struct TokenFileWriter::State {
  std::shared_ptr<PartialFolder> folder;
  std::string path;
  Options options;
  uint32_t tokenBytes = 1;
  uint64_t headerBytes = 0;
  uint64_t tokenCount = 0, documentCount = 0;
  bool documentPending = true; // true if the next token starts a document
  bool finished = false;
  bool isSaved = false;                      // true: a later process can resume from the folder
  Appended tokens;                           // the future file
  Appended starts;                           // per document a uint64: position of its first token
  XXH64_state_t *hash = XXH64_createState(); // checksum of the bytes of `tokens` behind the header

  ~State() {
    leave();
    XXH64_freeState(hash);
  }

  // Stops writing to the folder, and removes the folder unless save() was called.
  void leave() {
    if (folder && !isSaved)
      folder->remove();
    folder.reset();
  }

  Error failed(const char *what) {
    Error error{fmt::format("{}: {}: {}; {} bytes were written and {}", path, what,
                            std::strerror(errno), tokens.written,
                            isSaved ? "are kept: the same command goes on with them"
                                    : "have been removed"),
                ExitCode::Failure};
    if (errno == ENOSPC || errno == EDQUOT)
      error.message += ", make room or write elsewhere";
    leave();
    return error;
  }

  Result<void> open(std::shared_ptr<PartialFolder> given, const Options &chosen) {
    struct stat status;
    path = given->target();
    options = chosen;
    if (options.megatron && megatronIndexPath(path).empty())
      return userError("{}: the name of a Megatron data set must end in .bin", path);
    if (options.megatron)
      tokenBytes = options.vocabulary < kMegatronWide ? 2 : 4;
    else
      tokenBytes = options.vocabulary <= 1u << 8 ? 1 : options.vocabulary <= 1u << 16 ? 2 : 4;
    headerBytes = options.megatron ? 0 : sizeof(LmcTokenHeader);
    XXH64_reset(hash, 0);
    for (const std::string &target : {path, options.megatron ? megatronIndexPath(path) : path})
      if (stat(target.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
        return userError("{}: not a regular file, will not be replaced", target);
    folder = std::move(given);
    return {};
  }

  Result<void> create() {
    if (Result<void> emptied = folder->empty(); !emptied) {
      folder.reset();
      return emptied;
    }
    for (auto [file, name] : {std::pair{&tokens, "tokens"}, {&starts, "starts"}})
      if ((file->descriptor = ::open(folder->nameOf(name).c_str(),
                                     O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0)
        return failed("cannot create");
    // Reserves space for the header, whose contents are known only at the end.
    const LmcTokenHeader header{};
    return writeAll(tokens, reinterpret_cast<const char *>(&header), headerBytes);
  }

  Result<void> resume(const Saved &saved) {
    isSaved = true;
    tokenCount = saved.tokens;
    documentCount = saved.documents;
    documentPending = documentCount == 0;
    tokens.written = headerBytes + saved.tokens * tokenBytes;
    starts.written = saved.documents * sizeof(uint64_t);
    const auto lacks = [&] {
      return userError("{}: has less than was saved, so that it cannot be gone on with",
                       partialFolder(path));
    };
    if (saved.hash.size() != 2 * sizeof(*hash))
      return lacks();
    for (size_t i = 0; i < sizeof(*hash); ++i) {
      auto *byte = reinterpret_cast<unsigned char *>(hash) + i;
      const char *digits = saved.hash.data() + 2 * i;
      if (std::from_chars(digits, digits + 2, *byte, 16).ptr != digits + 2)
        return lacks();
    }
    for (auto [file, name] : {std::pair{&tokens, "tokens"}, {&starts, "starts"}}) {
      struct stat status;
      file->descriptor = ::open(folder->nameOf(name).c_str(), O_RDWR | O_CLOEXEC);
      if (file->descriptor < 0 || fstat(file->descriptor, &status) != 0 ||
          uint64_t(status.st_size) < file->written)
        return lacks();
      if (ftruncate(file->descriptor, off_t(file->written)) != 0 ||
          lseek(file->descriptor, 0, SEEK_END) < 0)
        return failed("cannot go on");
    }
    return {};
  }

  Result<void> writeAll(Appended &file, const char *data, size_t bytes) {
    while (bytes > 0) {
      ssize_t count = write(file.descriptor, data, bytes);
      if (count < 0 && errno == EINTR)
        continue;
      if (count < 0)
        return failed("cannot write");
      data += count;
      bytes -= static_cast<size_t>(count);
      file.written += static_cast<uint64_t>(count);
    }
    return {};
  }

  Result<void> flush(Appended &file) {
    if (&file == &tokens && !options.megatron)
      XXH64_update(hash, file.buffer.data(), file.buffer.size());
    LMC_TRY(writeAll(file, file.buffer.data(), file.buffer.size()));
    file.buffer.clear();
    return {};
  }

  Result<void> put(Appended &file, const void *data, size_t bytes) {
    const char *first = static_cast<const char *>(data);
    file.buffer.insert(file.buffer.end(), first, first + bytes);
    return file.buffer.size() >= kBufferBytes ? flush(file) : Result<void>();
  }

  template <typename Token> Result<void> putTokens(std::span<const uint32_t> ids) {
    std::vector<Token> narrow(ids.begin(), ids.end());
    return put(tokens, narrow.data(), narrow.size() * sizeof(Token));
  }

  Result<void> sync(Appended &file) {
    LMC_TRY(flush(file));
    return fsync(file.descriptor) == 0 ? Result<void>() : failed("cannot sync");
  }

  // Calls visit(begin, end) for each document. Its tokens have the positions [begin, end).
  template <typename Visit> Result<void> eachDocument(Visit visit) {
    std::vector<uint64_t> chunk(kBufferBytes / sizeof(uint64_t));
    uint64_t before = 0;
    for (uint64_t first = 0; first < documentCount; first += chunk.size()) {
      const size_t bytes =
          std::min<uint64_t>(chunk.size(), documentCount - first) * sizeof(uint64_t);
      if (pread(starts.descriptor, chunk.data(), bytes, off_t(first * sizeof(uint64_t))) !=
          ssize_t(bytes))
        return failed("cannot read the starts of documents");
      for (size_t i = 0; i < bytes / sizeof(uint64_t); ++i) {
        if (first + i > 0)
          LMC_TRY(visit(before, chunk[i]));
        before = chunk[i];
      }
    }
    return visit(before, tokenCount);
  }

  Result<void> finishLmc() {
    const uint64_t zero = 0;
    const uint64_t end = headerBytes + tokenCount * tokenBytes;
    LMC_TRY(put(tokens, &zero, lmcTableOffset(tokenCount, tokenBytes) - end));
    LMC_TRY(
        eachDocument([&](uint64_t first, uint64_t) { return put(tokens, &first, sizeof(first)); }));
    const std::vector<uint16_t> &bytes = options.bytesOfTokens;
    LMC_TRY(put(tokens, bytes.data(), bytes.size() * sizeof(uint16_t)));
    LMC_TRY(flush(tokens));
    LmcTokenHeader header{};
    std::memcpy(header.magic, kLmcTokenMagic, sizeof(header.magic));
    header.version = bytes.empty()            ? kLmcTokenVersion
                     : options.tokenizer == 0 ? kLmcBytesVersion
                                              : kLmcTokenizerVersion;
    header.tokenBytes = tokenBytes;
    header.vocabulary = options.vocabulary;
    header.endOfDocument = options.endOfDocument;
    header.tokens = tokenCount;
    header.documents = documentCount;
    XXH64_update(hash, &header, offsetof(LmcTokenHeader, checksum));
    if (header.version >= kLmcTokenizerVersion) {
      header.tokenizer = options.tokenizer;
      XXH64_update(hash, &header.tokenizer, sizeof(header) - offsetof(LmcTokenHeader, tokenizer));
    }
    header.checksum = XXH64_digest(hash);
    if (pwrite(tokens.descriptor, &header, sizeof(header), 0) != sizeof(header))
      return failed("cannot write");
    return sync(tokens);
  }

  Result<void> finishMegatron() {
    LMC_TRY(sync(tokens));
    Appended index;
    index.descriptor =
        ::open(folder->nameOf("index").c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (index.descriptor < 0)
      return failed("cannot create the index");
    const auto putInteger = [&](auto value) { return put(index, &value, sizeof(value)); };
    LMC_TRY(put(index, kMegatronMagic.data(), kMegatronMagic.size()));
    LMC_TRY(putInteger(kMegatronVersion));
    LMC_TRY(putInteger(tokenBytes == 2 ? kMegatronUInt16 : kMegatronInt32));
    LMC_TRY(putInteger(documentCount)); // sequences
    LMC_TRY(putInteger(documentCount + 1));
    LMC_TRY(eachDocument([&](uint64_t first, uint64_t end) -> Result<void> {
      if (end - first > std::numeric_limits<int32_t>::max())
        return userError("{}: a document has {} tokens, more than the 2^31 - 1 of Megatron's "
                         "index; give a --document-separator",
                         path, end - first);
      return putInteger(static_cast<int32_t>(end - first));
    }));
    LMC_TRY(eachDocument([&](uint64_t first, uint64_t) {
      return putInteger(static_cast<int64_t>(first * tokenBytes));
    }));
    for (uint64_t document = 0; document <= documentCount; ++document)
      LMC_TRY(putInteger(static_cast<int64_t>(document)));
    return sync(index);
  }
};

TokenFileWriter::TokenFileWriter() : state(std::make_unique<State>()) {}
TokenFileWriter::~TokenFileWriter() = default;

Result<std::unique_ptr<TokenFileWriter>>
TokenFileWriter::create(std::shared_ptr<PartialFolder> folder, const Options &options,
                        const Saved *saved) {
  std::unique_ptr<TokenFileWriter> writer(new TokenFileWriter());
  LMC_TRY(writer->state->open(std::move(folder), options));
  LMC_TRY(saved ? writer->state->resume(*saved) : writer->state->create());
  return writer;
}

void TokenFileWriter::beginDocument() { state->documentPending = true; }
uint64_t TokenFileWriter::tokens() const { return state->tokenCount; }
uint64_t TokenFileWriter::documents() const { return state->documentCount; }

Result<void> TokenFileWriter::append(std::span<const uint32_t> ids) {
  if (ids.empty())
    return {};
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] >= state->options.vocabulary)
      return userError("{}: token {} is id {}, beyond the vocabulary of {}", state->path,
                       state->tokenCount + i, ids[i], state->options.vocabulary);
  if (state->documentPending) {
    LMC_TRY(state->put(state->starts, &state->tokenCount, sizeof(uint64_t)));
    ++state->documentCount;
  }
  state->documentPending = false;
  state->tokenCount += ids.size();
  switch (state->tokenBytes) {
  case 1:
    return state->putTokens<uint8_t>(ids);
  case 2:
    return state->putTokens<uint16_t>(ids);
  default:
    return state->putTokens<uint32_t>(ids);
  }
}

Result<TokenFileWriter::Saved> TokenFileWriter::save() {
  State &s = *state;
  LMC_TRY(s.sync(s.tokens));
  LMC_TRY(s.sync(s.starts));
  s.isSaved = true;
  const auto *bytes = reinterpret_cast<const unsigned char *>(s.hash);
  return Saved{s.tokenCount, s.documentCount,
               fmt::format("{:02x}", fmt::join(bytes, bytes + sizeof(*s.hash), ""))};
}

Result<void> TokenFileWriter::finish() {
  State &s = *state;
  if (s.tokenCount == 0) {
    s.isSaved = false;
    s.leave();
    return userError("{}: not written, there are no tokens to put into it", s.path);
  }
  LMC_TRY(s.flush(s.starts));
  LMC_TRY(s.options.megatron ? s.finishMegatron() : s.finishLmc());
  s.finished = true;
  return {};
}

Result<std::vector<Rename>> TokenFileWriter::release() {
  State &s = *state;
  if (!s.finished)
    LMC_TRY(finish());
  std::vector<Rename> renames;
  // Renames the .bin last, so that an interruption leaves no .bin without its own index.
  if (s.options.megatron)
    renames.push_back({s.folder->nameOf("index"), megatronIndexPath(s.path)});
  renames.push_back({s.folder->nameOf("tokens"), s.path});
  s.isSaved = true;
  return renames;
}

} // namespace lmc
