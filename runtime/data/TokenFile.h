// Token files. Four formats are read without conversion:
//   lmc       the format of `lmc-data pack` (LmcTokenHeader in TokenFormats.h)
//   llm.c     a 1024-byte header of int32 (magic 20240520, version 1, count) and uint16 tokens;
//             with magic 20240801, version 7: uint32 tokens
//   megatron  tokens in a `.bin` file, and an `.idx` file beside it (MegatronIndex.h)
//   bare      tokens in a `.bin` file without a header or index: uint16, as nanoGPT writes them
//
// The header decides the format. Without a header, an `.idx` file means megatron. A file with
// neither is bare, and DataFormat may set its token type. Error: a sample shows another type.
#pragma once

#include "ground/support/Result.h"
#include "runtime/data/ByteFile.h"
#include "runtime/data/Fingerprint.h"
#include "runtime/data/MegatronIndex.h"
#include "runtime/data/Separators.h"
#include "runtime/data/TokenFormats.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lmc {

enum class TokenFormat { Lmc, LlmC, Megatron, Bare };

const char *nameOf(TokenFormat format);

// The setting data.format: the format of files without a header.
//   Auto      megatron if there is an `.idx` file; else uint16, unless a sample contradicts
//   UInt16    uint16 tokens; the program reads no `.idx` file and no sample
//   UInt32    uint32 tokens; the program reads no `.idx` file and no sample
//   Megatron  the `.idx` file must exist; the program reads no sample
enum class DataFormat { Auto, UInt16, UInt32, Megatron };

// Returns the format with the name "auto", "uint16", "uint32" or "megatron". Error: another name.
Result<DataFormat> parseDataFormat(std::string_view name);

// One token file. It must not change while it is open. Several threads may read it.
class TokenFile {
public:
  // Errors: the file is missing, empty or truncated; its size is no multiple of the token size; it
  // has 4 KiB of zeros; it has no header, and its tokens seem not to be uint16.
  static Result<std::unique_ptr<TokenFile>> open(const std::string &path,
                                                 DataFormat format = DataFormat::Auto);

  uint64_t size() const { return tokens; } // number of tokens
  TokenFormat format() const { return kind; }
  const std::string &path() const { return file.path(); }
  std::pair<uint64_t, uint64_t> identity() const { return file.identity(); } // of ByteFile
  // Returns the vocabulary size in the header: every id is below it. 0: the format has none.
  uint32_t vocabulary() const { return vocabularySize; }
  // Returns LmcTokenHeader::tokenizer; 0: unknown.
  uint64_t tokenizer() const { return tokenizerHash; }
  TokenType type() const { return idType; }
  // Returns the number of bytes of a token: 1, 2, 4 or 8.
  uint32_t tokenBytes() const { return infoOf(idType).bytes; }
  // Returns the id of the token that ends documents; -1: none or unknown.
  int32_t endOfDocument() const { return separator; }
  // Returns the number of bytes of each id's text, or kUnknownBytes. Empty: not in the file.
  Result<std::vector<uint16_t>> bytesOfTokens() const;
  // Returns true if the file says where its documents start.
  bool hasDocuments() const { return table > 0 || index; }
  // 1 unless hasDocuments()
  uint64_t documents() const { return documentCount; }
  // Returns the index of the first token of each of the documents [first, first + count), which
  // must exist. In Megatron's format a document may have no tokens.
  Result<std::vector<uint64_t>> documentStarts(uint64_t first, uint64_t count) const;
  // Returns the index of the first token of each document that begins after `begin` and before
  // `end`, and the number of the first such document. Needs O(log(documents())) reads.
  struct Starts {
    uint64_t first = 0;
    std::vector<uint64_t> tokens;
  };
  Result<Starts> documentsBetween(uint64_t begin, uint64_t end) const;
  // Copies tokens [begin, begin + count), which must exist, to `out`. An id of 2^31 or more becomes
  // negative. Error: the file has become shorter, or cannot be read.
  Result<void> read(uint64_t begin, uint64_t count, int32_t *out) const;
  // Returns an Error about the token at `position`: "a.bin: token 7 is id -1, negative". `limit`
  // describes the vocabulary: "50304 (model.vocab_size)".
  Error badId(uint64_t position, const std::string &limit) const;
  Result<FileFingerprint> fingerprint() const;
  // Returns true if `id` occurs among the tokens that the fingerprint samples.
  Result<bool> sampleHas(uint32_t id) const;
  // Reads and checks the whole file. Errors: the checksum or the table of documents is wrong; an id
  // is negative, or is at least the header's vocabulary size or `vocabSize` (0: no limit).
  // `separators`, unless it is null, counts the tokens that end documents.
  Result<void> verify(uint64_t vocabSize, SeparatorCount *separators = nullptr) const;

private:
  explicit TokenFile(ByteFile file) : file(std::move(file)) {}
  Result<void> readLmcHeader();
  Result<void> readLlmCHeader(int32_t magic);
  Result<void> readMegatron(const std::string &indexPath);
  Result<void> readBare(DataFormat wanted);
  Result<void> readHeader(DataFormat wanted);
  Result<void> checkIsUInt16() const;
  Result<void> checkIsWritten() const;
  Result<void> verifyLmc() const;

  ByteFile file;
  TokenFormat kind = TokenFormat::Bare;
  TokenType idType = TokenType::UInt16;
  uint64_t payload = 0; // offset of the first token, in bytes
  uint64_t tokens = 0;
  uint32_t vocabularySize = 0;
  int32_t separator = -1;
  uint64_t checksum = 0; // lmc format
  uint64_t tokenizerHash = 0;
  bool hasBytes = false;      // true if the file has a table of the size of each id's text
  uint64_t bytesTable = 0;    // offset of this table, in bytes
  uint64_t table = 0;         // lmc format: offset of the table of documents, in bytes
  uint64_t documentCount = 1; // number of documents; 1 without a table or index
  std::optional<MegatronIndex> index;
};

} // namespace lmc
