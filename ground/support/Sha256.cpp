#include "ground/support/Sha256.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

namespace lmc {

using Digest = unsigned char[SHA256_DIGEST_LENGTH];

static std::string hexadecimal(const Digest &digest) {
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

std::string sha256(const void *data, size_t bytes) {
  Digest digest;
  SHA256(static_cast<const unsigned char *>(data), bytes, digest);
  return hexadecimal(digest);
}

std::string hmacSha256(const std::string &key, const std::string &text) {
  Digest digest;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char *>(text.data()), text.size(), digest, nullptr);
  return hexadecimal(digest);
}

} // namespace lmc
