#include "runtime/data/TokenFileWriter.h"

#include "runtime/data/TokenFormats.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace lmc {

namespace {

constexpr size_t kBufferBytes = 1 << 20;

std::string directoryOf(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

} // namespace

struct TokenFileWriter::State {
  std::string path, partial;
  int descriptor = -1;
  Options options;
  uint32_t tokenBytes = 1;
  uint64_t tokens = 0;
  uint64_t written = 0;        // bytes in the file, without those in `buffer`
  bool documentPending = true; // the next token starts a document
  bool finished = false;
  std::vector<uint64_t> starts;
  std::vector<char> buffer;
  XXH64_state_t *hash = XXH64_createState();

  ~State() {
    discard();
    XXH64_freeState(hash);
  }

  void discard() {
    if (descriptor < 0)
      return;
    close(descriptor);
    descriptor = -1;
    unlink(partial.c_str());
  }

  Error failed(const char *what) {
    Error error{fmt::format("{}: {}: {}; {} bytes were written and have been removed", path, what,
                            std::strerror(errno), written),
                ExitCode::Failure};
    if (errno == ENOSPC || errno == EDQUOT)
      error.message += ", make room or write elsewhere";
    discard();
    return error;
  }

  Result<void> writeAll(const char *data, size_t bytes) {
    while (bytes > 0) {
      ssize_t count = write(descriptor, data, bytes);
      if (count < 0 && errno == EINTR)
        continue;
      if (count < 0)
        return failed("cannot write");
      data += count;
      bytes -= static_cast<size_t>(count);
      written += static_cast<uint64_t>(count);
    }
    return {};
  }

  Result<void> flush() {
    XXH64_update(hash, buffer.data(), buffer.size());
    LMC_TRY(writeAll(buffer.data(), buffer.size()));
    buffer.clear();
    return {};
  }

  Result<void> put(const void *data, size_t bytes) {
    const char *first = static_cast<const char *>(data);
    buffer.insert(buffer.end(), first, first + bytes);
    return buffer.size() >= kBufferBytes ? flush() : Result<void>();
  }

  template <typename Token> Result<void> putTokens(std::span<const uint32_t> ids) {
    std::vector<Token> narrow(ids.begin(), ids.end());
    return put(narrow.data(), narrow.size() * sizeof(Token));
  }
};

TokenFileWriter::TokenFileWriter() : state(std::make_unique<State>()) {}
TokenFileWriter::~TokenFileWriter() = default;

Result<std::unique_ptr<TokenFileWriter>> TokenFileWriter::create(const std::string &path,
                                                                 const Options &options) {
  struct stat status;
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    return Error{fmt::format("{}: not a regular file, will not be replaced", path)};
  std::unique_ptr<TokenFileWriter> writer(new TokenFileWriter());
  State &state = *writer->state;
  state.path = path;
  state.partial = fmt::format("{}.partial-{}", path, getpid());
  state.options = options;
  state.tokenBytes = options.vocabulary <= 1u << 8 ? 1 : options.vocabulary <= 1u << 16 ? 2 : 4;
  state.descriptor = open(state.partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (state.descriptor < 0) {
    bool full = errno == ENOSPC || errno == EDQUOT;
    return Error{fmt::format("{}: cannot create: {}", path, std::strerror(errno)),
                 full ? ExitCode::Failure : ExitCode::UserError};
  }
  XXH64_reset(state.hash, 0);
  // Reserves space for the header. Its contents are known, and added to the hash, only at the end.
  LmcTokenHeader header{};
  LMC_TRY(state.writeAll(reinterpret_cast<const char *>(&header), sizeof(header)));
  return writer;
}

void TokenFileWriter::beginDocument() { state->documentPending = true; }
uint64_t TokenFileWriter::tokens() const { return state->tokens; }
uint64_t TokenFileWriter::documents() const { return state->starts.size(); }

Result<void> TokenFileWriter::append(std::span<const uint32_t> ids) {
  if (ids.empty())
    return {};
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] >= state->options.vocabulary)
      return Error{fmt::format("{}: token {} is id {}, beyond the vocabulary of {}", state->path,
                               state->tokens + i, ids[i], state->options.vocabulary)};
  if (state->documentPending)
    state->starts.push_back(state->tokens);
  state->documentPending = false;
  state->tokens += ids.size();
  switch (state->tokenBytes) {
  case 1:
    return state->putTokens<uint8_t>(ids);
  case 2:
    return state->putTokens<uint16_t>(ids);
  default:
    return state->putTokens<uint32_t>(ids);
  }
}

Result<void> TokenFileWriter::finish() {
  State &s = *state;
  if (s.tokens == 0) {
    s.discard();
    return Error{fmt::format("{}: not written, there are no tokens to put into it", s.path)};
  }
  const uint64_t zero = 0;
  uint64_t end = sizeof(LmcTokenHeader) + s.tokens * s.tokenBytes;
  LMC_TRY(s.put(&zero, lmcTableOffset(s.tokens, s.tokenBytes) - end));
  LMC_TRY(s.put(s.starts.data(), s.starts.size() * sizeof(uint64_t)));
  LMC_TRY(s.flush());
  LmcTokenHeader header{};
  std::memcpy(header.magic, kLmcTokenMagic, sizeof(header.magic));
  header.version = kLmcTokenVersion;
  header.tokenBytes = s.tokenBytes;
  header.vocabulary = s.options.vocabulary;
  header.endOfDocument = s.options.endOfDocument;
  header.tokens = s.tokens;
  header.documents = s.starts.size();
  XXH64_update(s.hash, &header, offsetof(LmcTokenHeader, checksum));
  header.checksum = XXH64_digest(s.hash);
  if (pwrite(s.descriptor, &header, sizeof(header), 0) != sizeof(header))
    return s.failed("cannot write");
  if (fsync(s.descriptor) != 0)
    return s.failed("cannot sync");
  s.finished = true;
  return {};
}

Result<void> TokenFileWriter::commit() {
  State &s = *state;
  if (!s.finished)
    LMC_TRY(finish());
  if (rename(s.partial.c_str(), s.path.c_str()) != 0)
    return s.failed("cannot rename");
  close(s.descriptor);
  s.descriptor = -1;
  // The file's name is on the disk once its folder is synced. Some network file systems cannot sync
  // a folder; the file is complete there too, so a failure is ignored.
  int directory = open(directoryOf(s.path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    (void)fsync(directory);
    close(directory);
  }
  return {};
}

} // namespace lmc
