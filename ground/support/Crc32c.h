// CRC-32C, the cyclic redundancy check with Castagnoli's polynomial 0x1EDC6F41 (RFC 3720, section
// 12.1), which iSCSI, ext4 and the TFRecord format use.
#pragma once

#include <cstdint>
#include <string_view>

namespace lmc {

// Returns the CRC-32C of the bytes: 0xE3069283 for "123456789".
uint32_t crc32c(std::string_view bytes);

} // namespace lmc
