// The index of a Megatron data set: the file PATH.idx beside the tokens in PATH.bin. It lists the
// sequences of tokens in the .bin, and the documents, each of which is a range of sequences. The
// format is that of megatron/core/datasets/indexed_dataset.py in github.com/NVIDIA/Megatron-LM.
#pragma once

#include "runtime/data/ByteFile.h"
#include "runtime/data/TokenFormats.h"

#include <cstdint>
#include <string>

namespace lmc {

// Returns the path of the index of a data set, or "" if `path` does not end in ".bin".
std::string megatronIndexPath(const std::string &path);

class MegatronIndex {
public:
  // Reads the whole index once, but keeps none of its arrays in memory. Errors: the index is
  // truncated or of another version; its tokens are floating point; the data set has images; the
  // sequences do not cover the `dataBytes` bytes of the .bin in order; the documents do not cover
  // all sequences in order.
  static Result<MegatronIndex> open(const std::string &path, uint64_t dataBytes);

  TokenType type() const { return tokenType; }
  // Returns the number of documents, including those without tokens.
  uint64_t documents() const { return entries - 1; }
  // As TokenFile::documentStarts().
  Result<void> documentStarts(uint64_t first, uint64_t count, uint64_t *out) const;
  // Returns XXH64, seed 0, of a sample of the index.
  Result<uint64_t> hash() const { return file.sampleHash(0, file.bytes()); }

private:
  explicit MegatronIndex(ByteFile file) : file(std::move(file)) {}
  Result<void> readHeader();
  Result<void> checkSequences(uint64_t dataBytes) const;
  Result<void> checkDocuments() const;
  uint64_t pointersAt() const { return kMegatronHeaderBytes + sequences * sizeof(int32_t); }
  uint64_t documentsAt() const { return pointersAt() + sequences * sizeof(int64_t); }

  ByteFile file;
  TokenType tokenType = TokenType::UInt16;
  uint64_t sequences = 0;
  uint64_t entries = 0; // length of the array of documents, which is their number + 1
  uint64_t tokens = 0;
};

} // namespace lmc
