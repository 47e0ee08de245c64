// CRC-32C, the cyclic redundancy check with Castagnoli's polynomial 0x1EDC6F41 (RFC 3720, section
// 12.1), which iSCSI, ext4 and the TFRecord format use.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lmc {

// Element b is the CRC register after byte b, if the register was zero before. 0x82F63B78 is the
// polynomial with its bits reversed.
inline constexpr auto kCrc32cTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit)
      value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0);
    table[byte] = value;
  }
  return table;
}();

// Returns the CRC-32C of the bytes: 0xE3069283 for "123456789".
inline uint32_t crc32c(std::string_view bytes) {
  uint32_t value = ~uint32_t{0};
  for (const char byte : bytes)
    value = value >> 8 ^ kCrc32cTable[(value ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~value;
}

} // namespace lmc
