#include "runtime/data/TokenFile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <unistd.h>

namespace lmc {

namespace {

constexpr uint64_t kReadChunk = 1 << 16; // number of tokens or documents read at a time

// The names of formats for data.format and --format, in the order of DataFormat.
constexpr std::string_view kDataFormats[] = {"auto", "uint16", "uint32", "megatron"};

} // namespace

const char *nameOf(TokenFormat format) {
  constexpr const char *kNames[] = {"lmc", "llm.c", "megatron", "bare"};
  return kNames[static_cast<int>(format)];
}

Result<DataFormat> parseDataFormat(std::string_view name) {
  for (size_t i = 0; i < std::size(kDataFormats); ++i)
    if (name == kDataFormats[i])
      return static_cast<DataFormat>(i);
  return userError("'{}' is none of {}", name, fmt::join(kDataFormats, ", "));
}

Result<void> TokenFile::readLmcHeader() {
  LmcTokenHeader header;
  const uint64_t bytes = file.bytes();
  if (bytes < sizeof(header))
    return file.bad("truncated: {} bytes, inside the {}-byte header of an lmc token file; pack or "
                    "copy it again",
                    bytes, sizeof(header));
  LMC_TRY(file.read(0, sizeof(header), &header));
  if (header.version < kLmcTokenVersion || header.version > kLmcTokenizerVersion)
    return file.bad("byte 8: version {} of the token format, this program reads versions {} to {}; "
                    "pack the text again with this lmc-data",
                    header.version, kLmcTokenVersion, kLmcTokenizerVersion);
  if (header.tokenBytes != 1 && header.tokenBytes != 2 && header.tokenBytes != 4)
    return file.bad("byte 12: tokens of {} bytes, expected 1, 2 or 4; the header is damaged, pack "
                    "or copy it again",
                    header.tokenBytes);
  if (header.tokens == 0)
    return file.bad("byte 24: the header promises 0 tokens; pack it again");
  if (header.documents == 0)
    return file.bad("byte 32: the header promises 0 documents; pack it again");
  // Damaged counts could make the sum `bytesTable` overflow, so they are compared with the size.
  bool possible = header.tokens <= bytes && header.documents <= bytes;
  uint64_t offset = possible ? lmcTableOffset(header.tokens, header.tokenBytes) : 0;
  bytesTable = offset + header.documents * sizeof(uint64_t);
  hasBytes = header.version >= kLmcBytesVersion;
  uint64_t expected = bytesTable + (hasBytes ? header.vocabulary * sizeof(uint16_t) : 0);
  if (!possible || bytes < expected)
    return file.bad("truncated at byte {}: the header promises {} tokens of {} bytes and {} "
                    "documents; pack or copy it again",
                    bytes, header.tokens, header.tokenBytes, header.documents);
  if (bytes > expected)
    return file.bad(
        "byte {}: {} bytes after the end that the header promises; pack or copy it again", expected,
        bytes - expected);
  kind = TokenFormat::Lmc;
  idType = header.tokenBytes == 1   ? TokenType::UInt8
           : header.tokenBytes == 2 ? TokenType::UInt16
                                    : TokenType::UInt32;
  payload = sizeof(header);
  tokens = header.tokens;
  vocabularySize = header.vocabulary;
  separator = header.endOfDocument;
  checksum = header.checksum;
  if (header.version >= kLmcTokenizerVersion)
    tokenizerHash = header.tokenizer;
  table = offset;
  documentCount = header.documents;
  return {};
}

Result<void> TokenFile::readLlmCHeader(int32_t magic) {
  const uint64_t bytes = file.bytes();
  if (bytes < kLlmCHeaderBytes)
    return file.bad(
        "truncated: {} bytes, inside the {}-byte header of an llm.c token file; copy it again",
        bytes, kLlmCHeaderBytes);
  int32_t header[3];
  LMC_TRY(file.read(0, sizeof(header), header));
  int32_t version = magic == kLlmCMagic16 ? kLlmCVersion16 : kLlmCVersion32;
  if (header[1] != version)
    return file.bad("byte 4: version {} of llm.c's format {}, this program reads version {}",
                    header[1], magic, version);
  if (header[2] <= 0)
    return file.bad("byte 8: the header promises {} tokens; make it again", header[2]);
  kind = TokenFormat::LlmC;
  idType = magic == kLlmCMagic16 ? TokenType::UInt16 : TokenType::UInt32;
  payload = kLlmCHeaderBytes;
  tokens = static_cast<uint64_t>(header[2]);
  uint64_t expected = payload + tokens * tokenBytes();
  if (bytes < expected)
    return file.bad("truncated at byte {}: the header promises {} tokens of {} bytes, {} bytes in "
                    "all; copy it again",
                    bytes, tokens, tokenBytes(), expected);
  if (bytes > expected)
    return file.bad("byte {}: {} bytes after the end that the header promises; copy it again",
                    expected, bytes - expected);
  return {};
}

Result<void> TokenFile::readMegatron(const std::string &indexPath) {
  LMC_LET(opened, MegatronIndex::open(indexPath, file.bytes()));
  index.emplace(std::move(*opened));
  kind = TokenFormat::Megatron;
  idType = index->type();
  tokens = file.bytes() / tokenBytes();
  documentCount = index->documents();
  return {};
}

// Finds tokens that were never written: np.memmap and interrupted copies leave zeros.
Result<void> TokenFile::checkIsWritten() const {
  constexpr uint64_t kHole = 4096; // bytes that are all 0 in a hole: a page of a disk
  uint64_t hole = 0;               // end of the first hole; 0: there is none
  LMC_TRY(file.sample(payload, file.bytes(),
                      [&](uint64_t offset, std::span<const unsigned char> piece) {
                        uint64_t zeros = 0;
                        for (uint64_t i = 0; i < piece.size() && hole == 0; ++i) {
                          zeros = piece[i] == 0 ? zeros + 1 : 0;
                          if (zeros == kHole)
                            hole = offset + i + 1;
                        }
                      }));
  if (hole > 0)
    return file.bad("all {} bytes before byte {} are 0, as where tokens are not written yet or not "
                    "copied; if they are tokens, set data.format (lmc-data: --format)",
                    kHole, hole);
  return {};
}

// Checks that a file without header has uint16 tokens. In a file of 32-bit ids, each uint16 at an
// odd index is the high half of an id, and so is small. A 64-bit id takes four uint16, so the check
// needs four maxima: most[p] is the maximum of the sampled uint16 values whose index i in the file
// has i % 4 = p.
Result<void> TokenFile::checkIsUInt16() const {
  constexpr uint64_t kEnough = 256;   // number of uint16 values; fewer prove nothing
  constexpr uint16_t kHighHalf = 32;  // more than the high half of any id below 2^21
  constexpr uint16_t kLowHalf = 4096; // among ids above 2^16, some low half is at least this
  std::array<uint16_t, 4> most{};
  uint64_t seen = 0;
  LMC_TRY(file.sample(0, file.bytes(), [&](uint64_t offset, std::span<const unsigned char> piece) {
    for (uint64_t at = offset % 2; at + 1 < piece.size(); at += 2, ++seen) {
      uint16_t &place = most[(offset + at) / 2 % 4];
      place = std::max<uint16_t>(place, piece[at] | piece[at + 1] << 8);
    }
  }));
  const uint16_t even = std::max(most[0], most[2]), odd = std::max(most[1], most[3]);
  if (seen < kEnough)
    return {};
  if (odd == 0 && most[2] == 0 && even > 0)
    return file.bad(
        "three of four uint16 are 0, in each of {} sampled: these seem to be 64-bit ids, which a "
        ".bin without a header cannot have; write them as uint16 or uint32",
        seen);
  if ((odd == 0 && even > 0) || (odd < kHighHalf && even >= kLowHalf))
    return file.bad(
        "of {} sampled uint16 those at odd places are {}, those at even places are up to {}: these "
        "seem to be 32-bit ids; set data.format (lmc-data: --format) to uint32, or to uint16 if "
        "they are not, and if they are Megatron's put its .idx beside the .bin",
        seen, odd == 0 ? "0" : fmt::format("at most {}", odd), even);
  if (even == 0 && odd > 0)
    return file.bad("every second uint16 is 0, in each of {} sampled, from the first on: these "
                    "seem to be big-endian ids; write them as little-endian uint16 or uint32",
                    seen);
  return {};
}

Result<void> TokenFile::readBare(DataFormat wanted) {
  if (wanted == DataFormat::UInt32)
    idType = TokenType::UInt32;
  if (file.bytes() % tokenBytes() != 0)
    return file.bad("odd-sized: {} bytes are no whole number of {} tokens, and there is no header "
                    "that says otherwise",
                    file.bytes(), infoOf(idType).name);
  tokens = file.bytes() / tokenBytes();
  return wanted == DataFormat::Auto ? checkIsUInt16() : Result<void>();
}

Result<void> TokenFile::readHeader(DataFormat wanted) {
  const std::string &path = file.path();
  char begin[kMegatronMagic.size()] = {};
  size_t magicBytes = std::min<uint64_t>(file.bytes(), sizeof(begin));
  LMC_TRY(file.read(0, magicBytes, begin));
  if (magicBytes >= 4 &&
      std::memcmp(begin, kLmcTokenMagic, std::min(magicBytes, sizeof(kLmcTokenMagic))) == 0)
    return readLmcHeader();
  if (int32_t magic = 0; file.bytes() >= sizeof(magic)) {
    std::memcpy(&magic, begin, sizeof(magic));
    if (magic == kLlmCMagic16 || magic == kLlmCMagic32)
      return readLlmCHeader(magic);
  }
  // Rejects files of other programs, because their names may end in .bin, too.
  const std::pair<std::string_view, const char *> others[] = {
      {"\x93NUMPY", "a NumPy array with its header; write the ids alone, with tofile()"},
      {"PK\x03\x04", "a ZIP archive, as PyTorch saves weights"}};
  for (const auto &[magic, what] : others)
    if (std::string_view(begin, sizeof(begin)).starts_with(magic))
      return file.bad("this is {}", what);
  if (std::string_view(begin, sizeof(begin)) == kMegatronMagic)
    return file.bad("this is the index of a Megatron data set; give the .bin beside it");
  const std::string indexPath = megatronIndexPath(path);
  if (indexPath.empty())
    return file.bad("bad magic at byte 0: neither an lmc nor an llm.c token file, and only a .bin "
                    "is read without a header; make one with: lmc-data pack");
  const bool hasIndex = access(indexPath.c_str(), F_OK) == 0;
  if (wanted == DataFormat::Megatron && !hasIndex)
    return file.bad("{} is missing, which data.format (lmc-data: --format) = megatron needs",
                    indexPath);
  if (wanted == DataFormat::Megatron || (wanted == DataFormat::Auto && hasIndex))
    return readMegatron(indexPath);
  return readBare(wanted);
}

Result<void> TokenFile::verifyLmc() const {
  std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> hash(XXH64_createState(),
                                                                  &XXH64_freeState);
  XXH64_reset(hash.get(), 0);
  std::vector<char> piece(1 << 20);
  for (uint64_t at = payload; at < file.bytes(); at += piece.size()) {
    const uint64_t count = std::min<uint64_t>(piece.size(), file.bytes() - at);
    LMC_TRY(file.read(at, count, piece.data()));
    XXH64_update(hash.get(), piece.data(), count);
  }
  LmcTokenHeader header;
  LMC_TRY(file.read(0, sizeof(header), &header));
  XXH64_update(hash.get(), &header, offsetof(LmcTokenHeader, checksum));
  if (header.version >= kLmcTokenizerVersion)
    XXH64_update(hash.get(), &header.tokenizer,
                 sizeof(header) - offsetof(LmcTokenHeader, tokenizer));
  if (const uint64_t found = XXH64_digest(hash.get()); found != checksum)
    return file.bad("bad checksum: the header says {:016x}, the contents give {:016x}; the file is "
                    "damaged, pack or copy it again",
                    checksum, found);
  std::vector<uint64_t> starts;
  uint64_t last = 0;
  for (uint64_t first = 0; first < documentCount; first += starts.size()) {
    starts.resize(std::min(kReadChunk, documentCount - first));
    LMC_TRY(file.read(table + first * sizeof(uint64_t), starts.size() * sizeof(uint64_t),
                      starts.data()));
    for (uint64_t i = first; uint64_t start : starts) {
      if (i == 0 ? start != 0 : start <= last || start >= tokens)
        return file.bad("document {} starts at token {}: the starts must ascend from 0 and lie "
                        "below {}; pack it again",
                        i, start, tokens);
      last = start;
      ++i;
    }
  }
  return {};
}

Result<std::unique_ptr<TokenFile>> TokenFile::open(const std::string &path, DataFormat format) {
  LMC_LET(bytes, ByteFile::open(path));
  std::unique_ptr<TokenFile> file(new TokenFile(std::move(*bytes)));
  LMC_TRY(file->readHeader(format));
  if (format == DataFormat::Auto && file->format() != TokenFormat::Lmc) // lmc files have a checksum
    LMC_TRY(file->checkIsWritten());
  return file;
}

Result<std::vector<uint16_t>> TokenFile::bytesOfTokens() const {
  std::vector<uint16_t> bytes(hasBytes ? vocabularySize : 0);
  LMC_TRY(file.read(bytesTable, bytes.size() * sizeof(uint16_t), bytes.data()));
  return bytes;
}

Result<std::vector<uint64_t>> TokenFile::documentStarts(uint64_t first, uint64_t count) const {
  std::vector<uint64_t> starts(count);
  if (index)
    LMC_TRY(index->documentStarts(first, count, starts.data()));
  else if (table > 0)
    LMC_TRY(file.read(table + first * sizeof(uint64_t), count * sizeof(uint64_t), starts.data()));
  return starts;
}

Result<TokenFile::Starts> TokenFile::documentsBetween(uint64_t begin, uint64_t end) const {
  // Binary search for the first document that starts after `begin`.
  uint64_t low = 0, high = documents();
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    LMC_LET(start, documentStarts(middle, 1));
    if ((*start)[0] <= begin)
      low = middle + 1;
    else
      high = middle;
  }
  Starts found{low, {}};
  while (low < documents()) {
    LMC_LET(piece, documentStarts(low, std::min<uint64_t>(64, documents() - low)));
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
  const uint64_t width = tokenBytes();
  if (idType == TokenType::Int64) {
    std::vector<int64_t> ids(std::min(count, kReadChunk));
    for (uint64_t done = 0; done < count; done += ids.size()) {
      ids.resize(std::min(count - done, kReadChunk));
      LMC_TRY(file.read(payload + (begin + done) * width, ids.size() * width, ids.data()));
      for (uint64_t i = 0; i < ids.size(); ++i)
        out[done + i] = ids[i] < 0 || ids[i] > INT32_MAX ? -1 : static_cast<int32_t>(ids[i]);
    }
    return {};
  }
  // Reads ids into the end of `out`, so that widening them in order overwrites no unread id.
  char *raw = reinterpret_cast<char *>(out) + count * (sizeof(int32_t) - width);
  LMC_TRY(file.read(payload + begin * width, count * width, raw));
  auto widen = [&](auto id) -> Result<void> {
    for (uint64_t i = 0; i < count; ++i) {
      std::memcpy(&id, raw + i * sizeof(id), sizeof(id));
      const int32_t token = id;
      std::memcpy(out + i, &token, sizeof(token));
    }
    return {};
  };
  switch (idType) {
  case TokenType::UInt8:
    return widen(uint8_t());
  case TokenType::Int8:
    return widen(int8_t());
  case TokenType::UInt16:
    return widen(uint16_t());
  case TokenType::Int16:
    return widen(int16_t());
  default: // 32-bit values are already in place
    return {};
  }
}

Error TokenFile::badId(uint64_t position, const std::string &limit) const {
  int32_t id = 0;
  int64_t exact = 0;
  LMC_TRY(read(position, 1, &id));
  if (idType == TokenType::Int64) {
    LMC_TRY(file.read(position * sizeof(exact), sizeof(exact), &exact));
  } else {
    exact = infoOf(idType).isSigned ? int64_t(id) : int64_t(static_cast<uint32_t>(id));
  }
  return file.bad("token {} is id {}, {}", position, exact,
                  exact < 0 ? "negative" : "beyond the vocabulary of " + limit);
}

Result<FileFingerprint> TokenFile::fingerprint() const {
  FileFingerprint result{.path = path(),
                         .format = nameOf(kind),
                         .tokenType = infoOf(idType).name,
                         .bytes = file.bytes(),
                         .tokens = tokens,
                         .tokenizer = tokenizerHash};
  if (index) {
    LMC_SET(result.headerHash, index->hash());
  } else if (payload > 0) {
    std::vector<unsigned char> header(payload);
    LMC_TRY(file.read(0, header.size(), header.data()));
    result.headerHash = XXH64(header.data(), header.size(), 0);
  }
  LMC_SET(result.sampleHash, file.sampleHash(payload, payload + tokens * tokenBytes()));
  return result;
}

Result<bool> TokenFile::sampleHas(uint32_t id) const {
  const uint64_t width = tokenBytes(), begin = payload;
  bool found = false;
  if (width < sizeof(id) && id >> (8 * width) != 0)
    return found; // no token of this width can have this id
  LMC_TRY(file.sample(begin, begin + tokens * width,
                      [&](uint64_t offset, std::span<const unsigned char> piece) {
                        for (uint64_t at = (width - (offset - begin) % width) % width;
                             at + width <= piece.size(); at += width)
                          found |= std::memcmp(&piece[at], &id, std::min(width, sizeof(id))) == 0;
                      }));
  return found;
}

Result<void> TokenFile::verify(uint64_t vocabSize, SeparatorCount *separators) const {
  if (kind == TokenFormat::Lmc)
    LMC_TRY(verifyLmc());
  uint64_t limit = std::min(vocabSize ? vocabSize : UINT64_MAX,
                            vocabularySize ? uint64_t(vocabularySize) : UINT64_MAX);
  if (infoOf(idType).isSigned)
    limit = std::min<uint64_t>(limit, uint64_t(INT32_MAX) + 1);
  if (limit == UINT64_MAX && !separators)
    return {};
  std::vector<int32_t> chunk(kReadChunk);
  for (uint64_t begin = 0; begin < tokens; begin += kReadChunk) {
    uint64_t count = std::min(kReadChunk, tokens - begin);
    LMC_TRY(read(begin, count, chunk.data()));
    for (uint64_t i = 0; i < count; ++i)
      if (static_cast<uint32_t>(chunk[i]) >= limit)
        return badId(begin + i, fmt::format("{}", limit));
    if (separators)
      separators->add(begin, {chunk.data(), count});
  }
  return {};
}

} // namespace lmc
