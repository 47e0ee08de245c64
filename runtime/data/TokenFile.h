// Token files, which `lmc-data pack` writes and training reads.
//
// Three formats are read without conversion:
//   lmc      a header (LmcTokenHeader in TokenFormats.h), the tokens, the start of each document
//   llm.c    a 1024-byte header of int32 (magic 20240520, version 1, count) and uint16 tokens;
//            with magic 20240801, version 7: uint32 tokens
//   nanoGPT  uint16 tokens in a `.bin` file without a header
#pragma once

#include "runtime/support/Result.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lmc {

enum class TokenFormat { Lmc, LlmC, NanoGpt };

// One token file. It must not change while it is open, and may be read by several threads. The file
// is read, not mapped: a file that shrinks or a disk that fails is then an error, not the signal
// SIGBUS.
class TokenFile {
public:
  // Opens the file and checks the header against the file's size. Errors (missing, empty,
  // truncated, odd-sized) name the file and the byte, and say what to do.
  static Result<std::unique_ptr<TokenFile>> open(const std::string &path);
  ~TokenFile();

  uint64_t size() const; // number of tokens
  TokenFormat format() const;
  const std::string &path() const;
  // A number that every id is below, from the header; 0 if the format has no such field.
  uint32_t vocabulary() const;
  // The bytes of one token in the file: 1, 2 or 4.
  uint32_t tokenBytes() const;
  // The id of the token that separates documents; -1 if there is none or the header does not give
  // it.
  int32_t endOfDocument() const;
  // The number of documents; 1 if the file has no table of documents.
  uint64_t documents() const;
  // Returns the index of the first token of each of the documents [first, first + count), which
  // must exist. The indices ascend from 0; without a table the only document starts at 0.
  Result<std::vector<uint64_t>> documentStarts(uint64_t first, uint64_t count) const;
  // Returns those starts of documents that lie in (begin, end), as the table has them, and the
  // number of the first of them. Takes a logarithmic number of reads.
  struct Starts {
    uint64_t first = 0;
    std::vector<uint64_t> tokens;
  };
  Result<Starts> documentsBetween(uint64_t begin, uint64_t end) const;
  // Copies tokens [begin, begin + count) to `out` as int32. The range must exist. An id of 2^31 or
  // more becomes negative. Error: the file has become shorter, or cannot be read.
  Result<void> read(uint64_t begin, uint64_t count, int32_t *out) const;
  // Reads the whole file. Returns an error unless the checksum and the table of documents are right
  // and every id is below the header's vocabulary and below `vocabSize` (0: no such limit).
  Result<void> verify(uint64_t vocabSize) const;

private:
  TokenFile();
  struct State;
  std::unique_ptr<State> state;
};

} // namespace lmc
