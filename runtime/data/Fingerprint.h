// A fingerprint identifies a token file by its format, size and token count, and by hashes of its
// header and of a sample of 64 pieces of 4 KiB. A change outside the sample is not seen in a file whose
// header has no checksum.
#pragma once

#include "ground/support/Result.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace lmc {

struct FileFingerprint {
  std::string path;
  std::string format;    // as nameOf(TokenFormat) says: "lmc"
  std::string tokenType; // "uint16"
  uint64_t bytes = 0;
  uint64_t tokens = 0;
  // XXH64, seed 0, of the header. For Megatron's format: of a sample of the index, which has the
  // header. 0: there is no header.
  uint64_t headerHash = 0;
  // XXH64, seed 0, of the tokens that ByteFile::sample() visits.
  uint64_t sampleHash = 0;
  uint64_t tokenizer = 0; // TokenFile::tokenizer()

  bool operator==(const FileFingerprint &) const = default;
};

// Returns true if both files tell their tokenizers and these differ.
bool haveOtherTokenizers(const FileFingerprint &first, const FileFingerprint &second);

// Returns how the contents of a file differ from those recorded, for an error: "120 tokens, were
// 100". Returns nothing if they agree, even if the path differs.
std::optional<std::string> difference(const FileFingerprint &was, const FileFingerprint &is);

// Converts to an object with the names of the members. Hashes are hexadecimal strings, because not
// every program reads integers of 64 bits.
nlohmann::ordered_json toJson(const FileFingerprint &fingerprint);
// Error: a member is missing or of another type.
Result<FileFingerprint> fingerprintFromJson(const nlohmann::json &json);

} // namespace lmc
