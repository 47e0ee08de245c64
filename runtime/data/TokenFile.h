// Token files, which `lmc-data pack` writes and training reads.
//
// Three formats are read without conversion:
//   lmc      "LMCTOKEN" header (magic, version, dtype, vocabulary, token count,
//            document count, checksum), tokens, then the start of each document
//   llm.c    1024-byte header of int32 (magic 20240520, version 1, count), uint16
//            tokens; magic 20240801 version 7: uint32 tokens
//   nanoGPT  bare uint16 tokens, a `.bin` without a header
#pragma once

#include "runtime/support/Result.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lmc {

enum class TokenFormat { Lmc, LlmC, NanoGpt };

// One mapped token file. Immutable and safe to read from several threads.
class TokenFile {
public:
  // Maps the file and checks the header against the file's size. Errors (missing, empty, truncated,
  // odd-sized) name the file and the byte, and say what to do.
  static Result<std::unique_ptr<TokenFile>> open(const std::string &path);
  ~TokenFile();

  uint64_t size() const;                          // tokens
  TokenFormat format() const;
  const std::string &path() const;
  // The limit that all ids are below according to the header; 0 if the format has no such field.
  uint32_t vocabulary() const;
  // Bytes of a token in the file: 1, 2 or 4.
  uint32_t tokenBytes() const;
  // The id that separates documents; -1 if there is none or the format has no such field.
  int32_t endOfDocument() const;
  // The first token of each document, ascending from 0; {0} if the format has no such table.
  std::span<const uint64_t> documentStarts() const;
  // Copies tokens [begin, begin + count) widened to int32; the range must exist. An id of 2^31 or
  // more becomes negative.
  void read(uint64_t begin, uint64_t count, int32_t *out) const;
  // Reads the whole file and checks the checksum, the table of documents, and that every id is
  // below the header's vocabulary and below `vocabSize` (0: no such limit).
  Result<void> verify(uint64_t vocabSize) const;

private:
  TokenFile();
  struct State;
  std::unique_ptr<State> state;
};

} // namespace lmc
