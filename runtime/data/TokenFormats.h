// The headers of token files, for the reader and the writer. All integers are little-endian.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace lmc {

static_assert(std::endian::native == std::endian::little, "integers are read as they are");

// The type of the ids in a file.
enum class TokenType { UInt8, UInt16, UInt32, Int8, Int16, Int32, Int64 };

struct TokenTypeInfo {
  const char *name; // NumPy's name: "uint16"
  uint32_t bytes;
  bool isSigned;
};
constexpr TokenTypeInfo infoOf(TokenType type) {
  constexpr TokenTypeInfo kInfos[] = {
      {"uint8", 1, false}, {"uint16", 2, false}, {"uint32", 4, false}, {"int8", 1, true},
      {"int16", 2, true},  {"int32", 4, true},   {"int64", 8, true}};
  return kInfos[static_cast<int>(type)];
}

// An lmc file has this header, the tokens, zeros up to a multiple of 8 bytes, and one uint64 per
// document: the index of its first token. Since version 2, a uint16 follows for each id below
// `vocabulary`: the number of bytes of the token's text, or kUnknownBytes. Since version 3, the
// header has a hash of the tokenizer.
struct LmcTokenHeader {
  char magic[8];         // "LMCTOKEN"
  uint32_t version;      // 1, 2 or 3
  uint32_t tokenBytes;   // 1, 2 or 4 for uint8, uint16 or uint32 tokens
  uint32_t vocabulary;   // larger than every id
  int32_t endOfDocument; // the id that ends documents; -1: none
  uint64_t tokens;
  uint64_t documents;
  uint64_t checksum;  // XXH64, seed 0, of the bytes after the header, then the header's bytes
                      // before this field and, in version 3, the header's bytes after this field
  uint64_t tokenizer; // XXH64, seed 0, of the tokenizer's file; 0: unknown, or before version 3
  uint64_t reserved;  // zero
};
static_assert(sizeof(LmcTokenHeader) == 64);

inline constexpr char kLmcTokenMagic[8] = {'L', 'M', 'C', 'T', 'O', 'K', 'E', 'N'};
inline constexpr uint32_t kLmcTokenVersion = 1;
inline constexpr uint32_t kLmcBytesVersion = 2;
inline constexpr uint32_t kLmcTokenizerVersion = 3;
// LmcTokenHeader::tokenizer if each token is one byte: XXH64, seed 0, of "bytes".
inline constexpr uint64_t kBytesAsTokens = 0x2d83aaba506794c4;
// Stands for the number of bytes of a token that has different texts, such as an unknown character.
inline constexpr uint16_t kUnknownBytes = 0xffff;

// An llm.c file starts with 256 int32: magic, version, token count, and zeros.
inline constexpr uint64_t kLlmCHeaderBytes = 256 * sizeof(int32_t);
inline constexpr int32_t kLlmCMagic16 = 20240520; // version 1, uint16 tokens (GPT-2)
inline constexpr int32_t kLlmCVersion16 = 1;
inline constexpr int32_t kLlmCMagic32 = 20240801; // version 7, uint32 tokens (Llama 3)
inline constexpr int32_t kLlmCVersion32 = 7;

// The index of a Megatron data set has a header of 34 bytes: magic (9 bytes), version (uint64),
// code of the tokens' type (uint8), number of sequences S (uint64), number of documents D plus 1
// (uint64). Three arrays follow: the number of tokens of each sequence (int32[S]); the offset in
// bytes of each sequence in the .bin (int64[S]); the index of each document's first sequence, and
// then S (int64[D + 1]). A data set with images has one int8 per sequence after them.
inline constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};
inline constexpr uint64_t kMegatronVersion = 1;
inline constexpr uint64_t kMegatronHeaderBytes = 34;
// Codes of the tokens' type.
inline constexpr uint8_t kMegatronInt32 = 4;
inline constexpr uint8_t kMegatronUInt16 = 8;

// Returns the offset, in bytes, of the table of documents in an lmc file.
constexpr uint64_t lmcTableOffset(uint64_t tokens, uint32_t tokenBytes) {
  return (sizeof(LmcTokenHeader) + tokens * tokenBytes + 7) / 8 * 8;
}

} // namespace lmc
