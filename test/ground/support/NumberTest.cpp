#include "ground/support/Number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lmc {
namespace {

TEST(Number, ReadsWholeNumbersOnly) {
  EXPECT_EQ(parseDouble("0.5"), 0.5);
  EXPECT_EQ(parseDouble("+1e-4"), 1e-4);
  EXPECT_EQ(parseDouble("-3"), -3.0);
  EXPECT_EQ(parseDouble("inf"), std::numeric_limits<double>::infinity());
  for (const char *text : {"", "+", "+-1", "0,5", "0.5 ", " 0.5", "0x10", "1e999", "one"})
    EXPECT_FALSE(parseDouble(text)) << text;
}

TEST(Number, Rounds) {
  EXPECT_EQ(roundToDigits(0.123456789, 3), 0.123);
  EXPECT_EQ(roundToDigits(1234567.8, 3), 1230000.0);
  EXPECT_EQ(roundToDigits(1e-310, 6), 1e-310);
  EXPECT_TRUE(std::isnan(roundToDigits(std::nan(""), 6)));
}

} // namespace
} // namespace lmc
