#include "runtime/data/TokenFile.h"

#include "runtime/data/TokenFormats.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lmc {

struct TokenFile::State {
  std::string path;
  int descriptor = -1;
  uint64_t bytes = 0; // size of the file when it was opened
  TokenFormat format = TokenFormat::NanoGpt;
  uint32_t tokenBytes = 2;
  uint64_t payload = 0; // offset of the first token, in bytes
  uint64_t tokens = 0;
  uint32_t vocabulary = 0;
  int32_t endOfDocument = -1;
  uint64_t checksum = 0; // of a file of the lmc format
  uint64_t table = 0;     // offset of the table of documents, in bytes; 0 if there is none
  uint64_t documents = 1; // entries of the table

  ~State() {
    if (descriptor >= 0)
      close(descriptor);
  }
  // Reads `count` bytes from byte `offset` on.
  Result<void> readBytes(uint64_t offset, uint64_t count, void *out) const;
  Result<void> readLmcHeader();
  Result<void> readLlmCHeader(int32_t magic);
  Result<void> readHeader();
};

namespace {

constexpr uint64_t kReadChunk = 1 << 16; // tokens or documents that are read at a time

Error badFile(const std::string &path, const std::string &what) {
  return {fmt::format("{}: {}", path, what), ExitCode::UserError};
}

} // namespace

Result<void> TokenFile::State::readBytes(uint64_t offset, uint64_t count, void *out) const {
  for (uint64_t done = 0; done < count;) {
    ssize_t got = pread(descriptor, static_cast<char *>(out) + done, count - done,
                        static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return Error{fmt::format("{}: cannot read at byte {}: {}", path, offset + done,
                               std::strerror(errno)),
                   ExitCode::Failure};
    if (got == 0) {
      struct stat status {};
      fstat(descriptor, &status);
      return Error{fmt::format("{}: has {} bytes, but had {} when it was opened; it was cut short "
                               "while it was read, copy it again",
                               path, status.st_size, bytes),
                   ExitCode::Failure};
    }
    done += static_cast<uint64_t>(got);
  }
  return {};
}

Result<void> TokenFile::State::readLmcHeader() {
  LmcTokenHeader header;
  if (bytes < sizeof(header))
    return badFile(path, fmt::format("truncated: {} bytes, inside the {}-byte header of an lmc "
                                     "token file; pack or copy it again",
                                     bytes, sizeof(header)));
  LMC_TRY(readBytes(0, sizeof(header), &header));
  if (header.version != kLmcTokenVersion)
    return badFile(path, fmt::format("byte 8: version {} of the token format, this program reads "
                                     "version {}; pack the text again with this lmc-data",
                                     header.version, kLmcTokenVersion));
  if (header.tokenBytes != 1 && header.tokenBytes != 2 && header.tokenBytes != 4)
    return badFile(path, fmt::format("byte 12: tokens of {} bytes, expected 1, 2 or 4; the header "
                                     "is damaged, pack or copy it again",
                                     header.tokenBytes));
  if (header.tokens == 0)
    return badFile(path, "byte 24: the header promises 0 tokens; pack it again");
  if (header.documents == 0)
    return badFile(path, "byte 32: the header promises 0 documents; pack it again");
  // The counts are first compared with the file's size: a damaged count could make the sum below
  // overflow.
  bool possible = header.tokens <= bytes && header.documents <= bytes;
  uint64_t offset = possible ? lmcTableOffset(header.tokens, header.tokenBytes) : 0;
  uint64_t expected = offset + header.documents * sizeof(uint64_t);
  if (!possible || bytes < expected)
    return badFile(path, fmt::format("truncated at byte {}: the header promises {} tokens of {} "
                                     "bytes and {} documents; pack or copy it again",
                                     bytes, header.tokens, header.tokenBytes, header.documents));
  if (bytes > expected)
    return badFile(path, fmt::format("byte {}: {} bytes after the end that the header promises; "
                                     "pack or copy it again",
                                     expected, bytes - expected));
  format = TokenFormat::Lmc;
  tokenBytes = header.tokenBytes;
  payload = sizeof(header);
  tokens = header.tokens;
  vocabulary = header.vocabulary;
  endOfDocument = header.endOfDocument;
  checksum = header.checksum;
  table = offset;
  documents = header.documents;
  return {};
}

Result<void> TokenFile::State::readLlmCHeader(int32_t magic) {
  if (bytes < kLlmCHeaderBytes)
    return badFile(path, fmt::format("truncated: {} bytes, inside the {}-byte header of an llm.c "
                                     "token file; copy it again",
                                     bytes, kLlmCHeaderBytes));
  int32_t header[3];
  LMC_TRY(readBytes(0, sizeof(header), header));
  int32_t version = magic == kLlmCMagic16 ? kLlmCVersion16 : kLlmCVersion32;
  if (header[1] != version)
    return badFile(path, fmt::format("byte 4: version {} of llm.c's format {}, this program reads "
                                     "version {}",
                                     header[1], magic, version));
  if (header[2] <= 0)
    return badFile(path,
                   fmt::format("byte 8: the header promises {} tokens; make it again", header[2]));
  format = TokenFormat::LlmC;
  tokenBytes = magic == kLlmCMagic16 ? 2 : 4;
  payload = kLlmCHeaderBytes;
  tokens = static_cast<uint64_t>(header[2]);
  uint64_t expected = payload + tokens * tokenBytes;
  if (bytes < expected)
    return badFile(path, fmt::format("truncated at byte {}: the header promises {} tokens of {} "
                                     "bytes, {} bytes in all; copy it again",
                                     bytes, tokens, tokenBytes, expected));
  if (bytes > expected)
    return badFile(path, fmt::format("byte {}: {} bytes after the end that the header promises; "
                                     "copy it again",
                                     expected, bytes - expected));
  return {};
}

Result<void> TokenFile::State::readHeader() {
  char begin[sizeof(kLmcTokenMagic)] = {};
  size_t magicBytes = std::min<uint64_t>(bytes, sizeof(begin));
  LMC_TRY(readBytes(0, magicBytes, begin));
  if (magicBytes >= 4 && std::memcmp(begin, kLmcTokenMagic, magicBytes) == 0)
    return readLmcHeader();
  if (int32_t magic = 0; bytes >= sizeof(magic)) {
    std::memcpy(&magic, begin, sizeof(magic));
    if (magic == kLlmCMagic16 || magic == kLlmCMagic32)
      return readLlmCHeader(magic);
  }
  if (!path.ends_with(".bin"))
    return badFile(path, "bad magic at byte 0: neither an lmc nor an llm.c token file, and only a "
                         ".bin is read as bare uint16 tokens; make one with: lmc-data pack");
  if (bytes % 2 != 0)
    return badFile(path, fmt::format("odd-sized: {} bytes are no whole number of uint16 tokens, "
                                     "and there is no header that says otherwise",
                                     bytes));
  tokens = bytes / 2;
  return {};
}

TokenFile::TokenFile() : state(std::make_unique<State>()) {}
TokenFile::~TokenFile() = default;

Result<std::unique_ptr<TokenFile>> TokenFile::open(const std::string &path) {
  std::unique_ptr<TokenFile> file(new TokenFile());
  State &state = *file->state;
  state.path = path;
  state.descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (state.descriptor < 0)
    return badFile(path, errno == ENOENT ? std::string("missing: no such token file")
                                         : fmt::format("cannot open: {}", std::strerror(errno)));
  struct stat status;
  if (fstat(state.descriptor, &status) != 0 || !S_ISREG(status.st_mode))
    return badFile(path, "not a regular file");
  if (status.st_size == 0)
    return badFile(path, "empty: 0 bytes, no tokens");
  state.bytes = static_cast<uint64_t>(status.st_size);
  LMC_TRY(state.readHeader());
  return file;
}

uint64_t TokenFile::size() const { return state->tokens; }
TokenFormat TokenFile::format() const { return state->format; }
const std::string &TokenFile::path() const { return state->path; }
uint32_t TokenFile::vocabulary() const { return state->vocabulary; }
uint32_t TokenFile::tokenBytes() const { return state->tokenBytes; }
int32_t TokenFile::endOfDocument() const { return state->endOfDocument; }
uint64_t TokenFile::documents() const { return state->documents; }

Result<std::vector<uint64_t>> TokenFile::documentStarts(uint64_t first, uint64_t count) const {
  std::vector<uint64_t> starts(count);
  if (state->table > 0)
    LMC_TRY(state->readBytes(state->table + first * sizeof(uint64_t), count * sizeof(uint64_t),
                             starts.data()));
  return starts;
}

Result<TokenFile::Starts> TokenFile::documentsBetween(uint64_t begin, uint64_t end) const {
  // Binary search for the first document that starts after `begin`.
  uint64_t low = 0, high = documents();
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    auto start = documentStarts(middle, 1);
    LMC_TRY(start);
    if ((*start)[0] <= begin)
      low = middle + 1;
    else
      high = middle;
  }
  Starts found{low, {}};
  while (low < documents()) {
    auto piece = documentStarts(low, std::min<uint64_t>(64, documents() - low));
    LMC_TRY(piece);
    for (uint64_t start : *piece) {
      if (start >= end)
        return found;
      found.tokens.push_back(start);
    }
    low += piece->size();
  }
  return found;
}

Result<void> TokenFile::read(uint64_t begin, uint64_t count, int32_t *out) const {
  // The bytes are read into the end of `out`. Widening from the front then never overwrites a token
  // that is still to be read.
  const uint64_t width = state->tokenBytes;
  char *raw = reinterpret_cast<char *>(out) + count * (sizeof(int32_t) - width);
  LMC_TRY(state->readBytes(state->payload + begin * width, count * width, raw));
  auto widen = [&](auto id) {
    for (uint64_t i = 0; i < count; ++i) {
      std::memcpy(&id, raw + i * sizeof(id), sizeof(id));
      const int32_t token = id;
      std::memcpy(out + i, &token, sizeof(token));
    }
  };
  if (width == 1)
    widen(uint8_t());
  else if (width == 2)
    widen(uint16_t());
  return {};
}

Result<void> TokenFile::verify(uint64_t vocabSize) const {
  if (state->format == TokenFormat::Lmc) {
    std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> hash(XXH64_createState(),
                                                                    &XXH64_freeState);
    XXH64_reset(hash.get(), 0);
    std::vector<char> piece(1 << 20);
    for (uint64_t at = state->payload; at < state->bytes; at += piece.size()) {
      const uint64_t count = std::min<uint64_t>(piece.size(), state->bytes - at);
      LMC_TRY(state->readBytes(at, count, piece.data()));
      XXH64_update(hash.get(), piece.data(), count);
    }
    LMC_TRY(state->readBytes(0, offsetof(LmcTokenHeader, checksum), piece.data()));
    XXH64_update(hash.get(), piece.data(), offsetof(LmcTokenHeader, checksum));
    const uint64_t found = XXH64_digest(hash.get());
    if (found != state->checksum)
      return badFile(state->path, fmt::format("bad checksum: the header says {:016x}, the contents "
                                              "give {:016x}; the file is damaged, pack or copy it "
                                              "again",
                                              state->checksum, found));
  }
  uint64_t last = 0;
  for (uint64_t first = 0; first < documents(); first += kReadChunk) {
    auto starts = documentStarts(first, std::min(kReadChunk, documents() - first));
    LMC_TRY(starts);
    for (uint64_t i = first; uint64_t start : *starts) {
      if (i == 0 ? start != 0 : start <= last || start >= state->tokens)
        return badFile(state->path, fmt::format("document {} starts at token {}: the starts must "
                                                "ascend from 0 and lie below {}; pack it again",
                                                i, start, state->tokens));
      last = start;
      ++i;
    }
  }
  uint64_t limit = std::min(vocabSize ? vocabSize : UINT64_MAX,
                            state->vocabulary ? uint64_t(state->vocabulary) : UINT64_MAX);
  if (limit == UINT64_MAX)
    return {};
  std::vector<int32_t> chunk(kReadChunk);
  for (uint64_t begin = 0; begin < state->tokens; begin += kReadChunk) {
    uint64_t count = std::min(kReadChunk, state->tokens - begin);
    LMC_TRY(read(begin, count, chunk.data()));
    for (uint64_t i = 0; i < count; ++i)
      if (uint32_t id = static_cast<uint32_t>(chunk[i]); id >= limit)
        return badFile(state->path, fmt::format("token {} is id {}, beyond the vocabulary of {}",
                                                begin + i, id, limit));
  }
  return {};
}

} // namespace lmc
