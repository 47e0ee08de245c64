// A fingerprint identifies a token file by its format, size and token count, and by hashes of its
// header and of a sample of 64 pieces of 4 KiB. A change outside of the sample is noticed only if
// the header has a checksum.
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
  // XXH64, seed 0, of the header or, in Megatron's format, of a sample of the index, which includes
  // the header. 0: the file has no header.
  uint64_t headerHash = 0;
  // XXH64, seed 0, of those tokens that ByteFile::sample() visits.
  uint64_t sampleHash = 0;
  uint64_t tokenizer = 0; // TokenFile::tokenizer()

  bool operator==(const FileFingerprint &) const = default;
};

// Returns true if both files name a tokenizer and the two differ.
bool haveOtherTokenizers(const FileFingerprint &first, const FileFingerprint &second);

// Returns how a file's contents differ from the recorded ones, for an error: "120 tokens, were
// 100"; nullopt if they agree. Paths may differ.
std::optional<std::string> difference(const FileFingerprint &was, const FileFingerprint &is);

// The object has the names of the members. Hashes are hexadecimal strings, because some programs
// cannot read 64-bit integers.
nlohmann::ordered_json toJson(const FileFingerprint &fingerprint);
// Error: a member is missing or of another type.
Result<FileFingerprint> fingerprintFromJson(const nlohmann::json &json);

} // namespace lmc
