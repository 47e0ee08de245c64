// The headers of token files, for the reader and the writer. All integers are little-endian.
#pragma once

#include <bit>
#include <cstdint>

namespace lmc {

static_assert(std::endian::native == std::endian::little, "token files are mapped as they are");

// An lmc file is this header, the tokens, zeros up to a multiple of 8 bytes, then one uint64 per
// document: the index of its first token.
struct LmcTokenHeader {
  char magic[8];         // "LMCTOKEN"
  uint32_t version;      // kLmcTokenVersion
  uint32_t tokenBytes;   // 1, 2 or 4: uint8, uint16 or uint32 tokens
  uint32_t vocabulary;   // larger than every id
  int32_t endOfDocument; // the id that separates documents; -1: none
  uint64_t tokens;
  uint64_t documents;
  uint64_t checksum;    // XXH64, seed 0, of all bytes after the header, then of
                        // the header's bytes before this field
  uint64_t reserved[2]; // zero
};
static_assert(sizeof(LmcTokenHeader) == 64);

inline constexpr char kLmcTokenMagic[8] = {'L', 'M', 'C', 'T', 'O', 'K', 'E', 'N'};
inline constexpr uint32_t kLmcTokenVersion = 1;

// An llm.c file starts with 256 int32; the first three are magic, version and token count.
inline constexpr uint64_t kLlmCHeaderBytes = 256 * sizeof(int32_t);
inline constexpr int32_t kLlmCMagic16 = 20240520; // version 1, uint16 tokens (GPT-2)
inline constexpr int32_t kLlmCVersion16 = 1;
inline constexpr int32_t kLlmCMagic32 = 20240801; // version 7, uint32 tokens (Llama 3)
inline constexpr int32_t kLlmCVersion32 = 7;

// Returns the offset, in bytes, of the table of documents in an lmc file.
constexpr uint64_t lmcTableOffset(uint64_t tokens, uint32_t tokenBytes) {
  return (sizeof(LmcTokenHeader) + tokens * tokenBytes + 7) / 8 * 8;
}

} // namespace lmc
