#include "runtime/data/MegatronIndex.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <vector>

namespace lmc {

namespace {

constexpr uint64_t kChunk = 1 << 16; // number of sequences or documents read at a time
constexpr std::string_view kOldMagic{"TNTIDX\0\0", 8};

template <typename Integer> Integer integerAt(const char *bytes) {
  Integer value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

const std::map<uint8_t, TokenType> kTypes = {
    {1, TokenType::UInt8}, {2, TokenType::Int8},
    {3, TokenType::Int16}, {kMegatronInt32, TokenType::Int32},
    {5, TokenType::Int64}, {kMegatronUInt16, TokenType::UInt16}};

} // namespace

std::string megatronIndexPath(const std::string &path) {
  constexpr std::string_view kSuffix = ".bin";
  return path.ends_with(kSuffix) ? path.substr(0, path.size() - kSuffix.size()) + ".idx" : "";
}

Result<MegatronIndex> MegatronIndex::open(const std::string &path, uint64_t dataBytes) {
  LMC_LET(file, ByteFile::open(path));
  MegatronIndex index(std::move(*file));
  LMC_TRY(index.readHeader());
  LMC_TRY(index.checkSequences(dataBytes));
  LMC_TRY(index.checkDocuments());
  index.tokens = dataBytes / infoOf(index.tokenType).bytes;
  return index;
}

Result<void> MegatronIndex::readHeader() {
  std::array<char, kMegatronHeaderBytes> header{};
  LMC_TRY(file.read(0, std::min<uint64_t>(file.bytes(), header.size()), header.data()));
  const std::string_view begin(header.data(), kMegatronMagic.size());
  if (begin.starts_with(kOldMagic))
    return file.bad("an index of fairseq's older format (TNTIDX); make the data set again with the "
                    "preprocess_data.py of today's Megatron-LM");
  if (begin != kMegatronMagic)
    return file.bad(
        "bad magic at byte 0: not the index of a Megatron data set; if it does not belong to the "
        ".bin of this name, set data.format (lmc-data: --format) to uint16 or uint32");
  if (file.bytes() < header.size())
    return file.bad(
        "truncated: {} bytes, inside the {}-byte header of a Megatron index; copy it again",
        file.bytes(), header.size());
  if (auto version = integerAt<uint64_t>(&header[9]); version != kMegatronVersion)
    return file.bad("byte 9: version {} of Megatron's index, this program reads version {}",
                    version, kMegatronVersion);
  const auto code = integerAt<uint8_t>(&header[17]);
  if (code == 6 || code == 7)
    return file.bad("byte 17: the data are {}, which are no token ids",
                    code == 6 ? "float64" : "float32");
  const auto type = kTypes.find(code);
  if (type == kTypes.end())
    return file.bad(
        "byte 17: unknown code {} of the tokens' type; the header is damaged, copy it again", code);
  tokenType = type->second;
  sequences = integerAt<uint64_t>(&header[18]);
  entries = integerAt<uint64_t>(&header[26]);
  if (sequences == 0 || entries < 2)
    return file.bad("the header promises {} sequences and {} documents: no tokens; make it again",
                    sequences, entries == 0 ? 0 : entries - 1);
  // Damaged counts could make the sum `expected` overflow, so they are compared with the size.
  const bool possible = sequences <= file.bytes() && entries <= file.bytes();
  const uint64_t expected = possible ? documentsAt() + entries * sizeof(int64_t) : UINT64_MAX;
  if (file.bytes() < expected)
    return file.bad(
        "truncated at byte {}: the header promises {} sequences and {} documents; copy it again",
        file.bytes(), sequences, entries - 1);
  if (file.bytes() == expected + sequences)
    return file.bad("the index has a mode for each sequence, as data sets with images have; only "
                    "data sets of text are read");
  if (file.bytes() > expected)
    return file.bad("byte {}: {} bytes after the end that the header promises; copy it again",
                    expected, file.bytes() - expected);
  return {};
}

Result<void> MegatronIndex::checkSequences(uint64_t dataBytes) const {
  const uint64_t width = infoOf(tokenType).bytes;
  std::vector<int32_t> lengths(std::min(kChunk, sequences));
  std::vector<int64_t> pointers(lengths.size());
  uint64_t end = 0; // end of the previous sequence, in bytes
  for (uint64_t first = 0; first < sequences; first += kChunk) {
    const uint64_t count = std::min(kChunk, sequences - first);
    LMC_TRY(file.read(kMegatronHeaderBytes + first * sizeof(int32_t), count * sizeof(int32_t),
                      lengths.data()));
    LMC_TRY(file.read(pointersAt() + first * sizeof(int64_t), count * sizeof(int64_t),
                      pointers.data()));
    for (uint64_t i = 0; i < count; ++i) {
      if (lengths[i] < 0)
        return file.bad("sequence {} has {} tokens; the index is damaged, copy it again", first + i,
                        lengths[i]);
      if (pointers[i] < 0 || static_cast<uint64_t>(pointers[i]) != end)
        return file.bad(
            "sequence {} starts at byte {} of the .bin, but the sequence before it ends at byte "
            "{}; only an index whose sequences follow each other is read, make the data set again",
            first + i, pointers[i], end);
      end += static_cast<uint64_t>(lengths[i]) * width;
    }
  }
  if (end != dataBytes)
    return file.bad("the index describes {} tokens of type {}, {} bytes, but the .bin has {} "
                    "bytes; the two do not belong together or one is not whole, copy both again",
                    end / width, infoOf(tokenType).name, end, dataBytes);
  return {};
}

Result<void> MegatronIndex::checkDocuments() const {
  std::vector<uint64_t> firsts(std::min(kChunk, entries));
  uint64_t last = 0;
  for (uint64_t first = 0; first < entries; first += kChunk) {
    const uint64_t count = std::min(kChunk, entries - first);
    LMC_TRY(
        file.read(documentsAt() + first * sizeof(int64_t), count * sizeof(int64_t), firsts.data()));
    for (uint64_t i = 0; i < count; ++i) {
      if (first + i == 0 ? firsts[i] != 0 : firsts[i] < last || firsts[i] > sequences)
        return file.bad("document {} starts at sequence {}: the starts must ascend from 0 to {}; "
                        "the index is damaged, copy it again",
                        first + i, firsts[i], sequences);
      last = firsts[i];
    }
  }
  if (last != sequences)
    return file.bad("the documents end at sequence {} of {}; the index is damaged, copy it again",
                    last, sequences);
  return {};
}

Result<void> MegatronIndex::documentStarts(uint64_t first, uint64_t count, uint64_t *out) const {
  if (count == 0)
    return {};
  const uint64_t width = infoOf(tokenType).bytes;
  LMC_TRY(file.read(documentsAt() + first * sizeof(int64_t), count * sizeof(int64_t), out));
  auto pointersOf = [&](uint64_t sequence, uint64_t number, uint64_t *pointers) {
    return file.read(pointersAt() + sequence * sizeof(int64_t), number * sizeof(int64_t), pointers);
  };
  // If documents have at most 8 sequences on average, reads the pointers to all sequences at once.
  const uint64_t begin = out[0], end = std::min(out[count - 1] + 1, sequences);
  std::vector<uint64_t> pointers;
  if (begin < end && end - begin <= 8 * count) {
    pointers.resize(end - begin);
    LMC_TRY(pointersOf(begin, pointers.size(), pointers.data()));
  }
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t sequence = out[i];
    if (sequence >= sequences)
      out[i] = tokens; // a document without tokens, at the end of the data
    else if (sequence >= begin && sequence - begin < pointers.size())
      out[i] = pointers[sequence - begin] / width;
    else {
      LMC_TRY(pointersOf(sequence, 1, &out[i]));
      out[i] /= width;
    }
  }
  return {};
}

} // namespace lmc
