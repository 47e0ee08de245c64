#include "runtime/data/TokenFile.h"

#include "runtime/data/TokenFormats.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lmc {

struct TokenFile::State {
  std::string path;
  const std::byte *map = nullptr;
  uint64_t bytes = 0; // size of the file
  TokenFormat format = TokenFormat::NanoGpt;
  uint32_t tokenBytes = 2;
  uint64_t payload = 0; // offset of the first token, in bytes
  uint64_t tokens = 0;
  uint32_t vocabulary = 0;
  int32_t endOfDocument = -1;
  uint64_t checksum = 0; // of a file of the lmc format
  std::span<const uint64_t> documentStarts;

  ~State() {
    if (map)
      munmap(const_cast<std::byte *>(map), bytes);
  }
  Result<void> readLmcHeader();
  Result<void> readLlmCHeader(int32_t magic);
  Result<void> readHeader();
};

namespace {

constexpr uint64_t kNoDocuments[] = {0};
constexpr uint64_t kReadChunk = 1 << 16; // tokens that are checked at a time

Error badFile(const std::string &path, const std::string &what) {
  return {fmt::format("{}: {}", path, what), ExitCode::UserError};
}

} // namespace

Result<void> TokenFile::State::readLmcHeader() {
  LmcTokenHeader header;
  if (bytes < sizeof(header))
    return badFile(path, fmt::format("truncated: {} bytes, inside the {}-byte header of an lmc "
                                     "token file; pack or copy it again",
                                     bytes, sizeof(header)));
  std::memcpy(&header, map, sizeof(header));
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
  uint64_t table = possible ? lmcTableOffset(header.tokens, header.tokenBytes) : 0;
  uint64_t expected = table + header.documents * sizeof(uint64_t);
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
  documentStarts = {reinterpret_cast<const uint64_t *>(map + table), header.documents};
  return {};
}

Result<void> TokenFile::State::readLlmCHeader(int32_t magic) {
  if (bytes < kLlmCHeaderBytes)
    return badFile(path, fmt::format("truncated: {} bytes, inside the {}-byte header of an llm.c "
                                     "token file; copy it again",
                                     bytes, kLlmCHeaderBytes));
  int32_t header[3];
  std::memcpy(header, map, sizeof(header));
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
  documentStarts = kNoDocuments;
  size_t magicBytes = std::min<uint64_t>(bytes, sizeof(kLmcTokenMagic));
  if (magicBytes >= 4 && std::memcmp(map, kLmcTokenMagic, magicBytes) == 0)
    return readLmcHeader();
  if (int32_t magic = 0; bytes >= sizeof(magic)) {
    std::memcpy(&magic, map, sizeof(magic));
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
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0)
    return badFile(path, errno == ENOENT ? std::string("missing: no such token file")
                                         : fmt::format("cannot open: {}", std::strerror(errno)));
  struct stat status;
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor);
    return badFile(path, "not a regular file");
  }
  if (status.st_size == 0) {
    close(descriptor);
    return badFile(path, "empty: 0 bytes, no tokens");
  }
  std::unique_ptr<TokenFile> file(new TokenFile());
  file->state->path = path;
  file->state->bytes = static_cast<uint64_t>(status.st_size);
  void *map = mmap(nullptr, file->state->bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  int mapError = errno;
  close(descriptor);
  if (map == MAP_FAILED)
    return Error{fmt::format("{}: cannot map: {}", path, std::strerror(mapError)),
                 ExitCode::Failure};
  file->state->map = static_cast<const std::byte *>(map);
  LMC_TRY(file->state->readHeader());
  return file;
}

uint64_t TokenFile::size() const { return state->tokens; }
TokenFormat TokenFile::format() const { return state->format; }
const std::string &TokenFile::path() const { return state->path; }
uint32_t TokenFile::vocabulary() const { return state->vocabulary; }
uint32_t TokenFile::tokenBytes() const { return state->tokenBytes; }
int32_t TokenFile::endOfDocument() const { return state->endOfDocument; }
std::span<const uint64_t> TokenFile::documentStarts() const { return state->documentStarts; }

void TokenFile::read(uint64_t begin, uint64_t count, int32_t *out) const {
  // Tokens are aligned in every format, because the size of every header is a multiple of 64 bytes.
  const std::byte *first = state->map + state->payload + begin * state->tokenBytes;
  if (state->tokenBytes == 1)
    std::copy_n(reinterpret_cast<const uint8_t *>(first), count, out);
  else if (state->tokenBytes == 2)
    std::copy_n(reinterpret_cast<const uint16_t *>(first), count, out);
  else
    std::memcpy(out, first, count * sizeof(int32_t));
}

Result<void> TokenFile::verify(uint64_t vocabSize) const {
  if (state->format == TokenFormat::Lmc) {
    XXH64_state_t *hash = XXH64_createState();
    XXH64_reset(hash, 0);
    XXH64_update(hash, state->map + state->payload, state->bytes - state->payload);
    XXH64_update(hash, state->map, offsetof(LmcTokenHeader, checksum));
    uint64_t found = XXH64_digest(hash);
    XXH64_freeState(hash);
    if (found != state->checksum)
      return badFile(state->path, fmt::format("bad checksum: the header says {:016x}, the contents "
                                              "give {:016x}; the file is damaged, pack or copy it "
                                              "again",
                                              state->checksum, found));
  }
  std::span<const uint64_t> starts = state->documentStarts;
  for (size_t i = 0; i < starts.size(); ++i)
    if (i == 0 ? starts[i] != 0 : starts[i] <= starts[i - 1] || starts[i] >= state->tokens)
      return badFile(state->path, fmt::format("document {} starts at token {}: the starts must "
                                              "ascend from 0 and lie below {}; pack it again",
                                              i, starts[i], state->tokens));
  uint64_t limit = std::min(vocabSize ? vocabSize : UINT64_MAX,
                            state->vocabulary ? uint64_t(state->vocabulary) : UINT64_MAX);
  if (limit == UINT64_MAX)
    return {};
  std::vector<int32_t> chunk(kReadChunk);
  for (uint64_t begin = 0; begin < state->tokens; begin += kReadChunk) {
    uint64_t count = std::min(kReadChunk, state->tokens - begin);
    read(begin, count, chunk.data());
    for (uint64_t i = 0; i < count; ++i)
      if (uint32_t id = static_cast<uint32_t>(chunk[i]); id >= limit)
        return badFile(state->path, fmt::format("token {} is id {}, beyond the vocabulary of {}",
                                                begin + i, id, limit));
  }
  return {};
}

} // namespace lmc
