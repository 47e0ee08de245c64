#include "runtime/support/Sha256.h"

#include <fmt/format.h>
#include <openssl/sha.h>

namespace lmc {

std::string sha256(const void *data, size_t bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(static_cast<const unsigned char *>(data), bytes, digest);
  std::string text;
  for (unsigned char byte : digest)
    text += fmt::format("{:02x}", byte);
  return text;
}

} // namespace lmc
