#include "ground/support/Crc32c.h"

#include <array>

namespace lmc {

// table[b] is the register after the byte b, if the register was zero before b. 0x82F63B78 is the
// polynomial with its bits reversed.
static constexpr std::array<uint32_t, 256> makeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit)
      value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0);
    table[byte] = value;
  }
  return table;
}

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = makeTable();
  uint32_t value = ~uint32_t{0};
  for (const char byte : bytes)
    value = value >> 8 ^ kTable[(value ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~value;
}

} // namespace lmc
