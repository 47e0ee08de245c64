// A fingerprint identifies a token file by its size and by hashes of its header and of a sample. A
// change outside of the sample is noticed only if the header has a checksum.
#pragma once

#include "ground/support/Result.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace lmc {

struct FileFingerprint {
  std::string path;
  std::string format;    // nameOf(TokenFormat): "lmc"
  std::string tokenType; // "uint16"
  uint64_t bytes = 0;
  uint64_t tokens = 0;
  // XXH64, seed 0, of the header (in Megatron's format, of a sample of the index); 0: no header
  uint64_t headerHash = 0;
  uint64_t sampleHash = 0; // ByteFile::sampleHash() of the tokens
  uint64_t tokenizer = 0;  // TokenFile::tokenizer()

  bool operator==(const FileFingerprint &) const = default;
};

// Returns true if both tokenizers are known and differ.
bool haveOtherTokenizers(const FileFingerprint &first, const FileFingerprint &second);

// Compares a file's recorded fingerprint `was` with the present one, `is`, except for the paths.
// Returns the first difference, such as "120 tokens, were 100", or nullopt if there is none.
std::optional<std::string> difference(const FileFingerprint &was, const FileFingerprint &is);

// Writes hashes as hexadecimal strings, because some programs cannot read 64-bit integers.
nlohmann::ordered_json toJson(const FileFingerprint &fingerprint);
// Error: a member is missing or of another type.
Result<FileFingerprint> fingerprintFromJson(const nlohmann::json &json);

} // namespace lmc
