// Computes the SHA-256 hash of bytes, without and with a key.
#pragma once

#include <cstddef>
#include <string>

namespace lmc {

// Returns the SHA-256 hash of the `bytes` bytes at `data` as 64 lower-case hexadecimal digits.
std::string sha256(const void *data, size_t bytes);

// Returns the HMAC-SHA-256 (RFC 2104) of `text` under `key` as 64 lower-case hexadecimal digits.
// Only a program that knows the key can compute the HMAC.
std::string hmacSha256(const std::string &key, const std::string &text);

} // namespace lmc
