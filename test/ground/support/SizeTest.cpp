#include "ground/support/Size.h"

#include <gtest/gtest.h>

using namespace lmc;

TEST(Size, ReadsDecimalAndBinaryUnits) {
  EXPECT_EQ(*parseSize("4096"), 4096u);
  EXPECT_EQ(*parseSize("5GB"), 5'000'000'000u); // as Hugging Face's max_shard_size counts
  EXPECT_EQ(*parseSize("1.5 KiB"), 1536u);
  for (const char *text : {"", "GB", "-1GB", "1.2.3MB", "5XB", "5gb", "9999999TiB"})
    EXPECT_FALSE(parseSize(text)) << text;
  EXPECT_NE(parseSize("5gb").error().message.find("did you mean 'GB'?"), std::string::npos);
}

TEST(Size, FormatsBytes) {
  EXPECT_EQ(formatBytes(0), "0 B");
  EXPECT_EQ(formatBytes(1023), "1023 B");
  EXPECT_EQ(formatBytes(1536), "1.50 KiB");
  EXPECT_EQ(formatBytes(uint64_t(80) << 30), "80.00 GiB");
}
