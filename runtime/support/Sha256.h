// The SHA-256 hash of bytes.
#pragma once

#include <cstddef>
#include <string>

namespace lmc {

// Returns the SHA-256 hash of the `bytes` bytes at `data` as 64 lower-case hexadecimal digits, as
// the program sha256sum prints it.
std::string sha256(const void *data, size_t bytes);

} // namespace lmc
