#include "ground/support/Crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace lmc {
namespace {

// RFC 3720, appendix B.4; it lists the four bytes of a CRC in the order of an iSCSI packet, the
// lowest one first.
TEST(Crc32c, IsThatOfTheExamplesOfRfc3720) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string rising, falling;
  for (char byte = 0; byte < 32; ++byte) {
    rising += byte;
    falling += static_cast<char>(31 - byte);
  }
  EXPECT_EQ(crc32c(rising), 0x46DD794Eu);
  EXPECT_EQ(crc32c(falling), 0x113FDB5Cu);
  const unsigned char command[48] = {0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                     0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00,
                                     0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00,
                                     0x00, 0x18, 0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                     0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  EXPECT_EQ(crc32c({reinterpret_cast<const char *>(command), sizeof(command)}), 0xD9963A56u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

} // namespace
} // namespace lmc
