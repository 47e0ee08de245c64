// Converts sizes in bytes from and to text.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace lmc {

// Returns the number of bytes of "76GiB", "1.5 GB", "4096".
Result<uint64_t> parseSize(std::string_view text);

// Formats bytes in binary units: "1.50 GiB".
std::string formatBytes(uint64_t bytes);

} // namespace lmc
