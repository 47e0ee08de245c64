#include "runtime/plan/FloatConvert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace lmc {
namespace {

using plan::DType;

// The nearest bf16 by exhaustive comparison in double; ties go to the even one.
uint16_t nearestBFloat16(double value) {
  uint16_t best = 0;
  double distance = std::numeric_limits<double>::infinity();
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) { // all finite, not negative
    double candidate = fromBFloat16(static_cast<uint16_t>(bits));
    double d = std::abs(candidate - std::abs(value));
    if (d < distance || (d == distance && bits % 2 == 0)) {
      distance = d;
      best = static_cast<uint16_t>(bits);
    }
  }
  return std::signbit(value) ? best | 0x8000 : best;
}

TEST(FloatConvert, RoundsToTheNearestBFloat16TiesToEven) {
  for (float value : {0.0f, -0.0f, 1.0f, -1.5f, 3.14159f, 1.00390625f /* tie */,
                      1.01171875f /* tie */, 1e-40f /* denormal */, 3e38f, -2.7e-5f})
    EXPECT_EQ(toBFloat16(value), nearestBFloat16(value)) << value;
}

TEST(FloatConvert, KeepsInfinityAndNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(toBFloat16(infinity), 0x7F80);
  EXPECT_EQ(toBFloat16(-infinity), 0xFF80);
  EXPECT_EQ(toBFloat16(std::numeric_limits<float>::max()), 0x7F80);
  // A NaN whose payload is all in the lost half must not become infinity.
  EXPECT_TRUE(std::isnan(fromBFloat16(toBFloat16(std::bit_cast<float>(0x7F800001u)))));
}

TEST(FloatConvert, RoundsDoublesOnce) {
  // Just above the tie between two bf16: rounding to f32 first would make it the
  // tie, and then round down to even.
  double value = 1.00390625 + 0x1p-40;
  uint16_t bits = 0;
  ASSERT_TRUE(convertFloats(DType::F64, &value, DType::BF16, &bits, 1));
  EXPECT_EQ(bits, nearestBFloat16(value));
  EXPECT_EQ(bits, 0x3F81);
  value = -(1.01171875 - 0x1p-40);
  ASSERT_TRUE(convertFloats(DType::F64, &value, DType::BF16, &bits, 1));
  EXPECT_EQ(bits, 0xBF81);
}

TEST(FloatConvert, WideningIsExact) {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<uint16_t>(i);
  std::vector<double> wide(all.size());
  std::vector<uint16_t> back(all.size());
  ASSERT_TRUE(convertFloats(DType::BF16, all.data(), DType::F64, wide.data(), all.size()));
  ASSERT_TRUE(convertFloats(DType::F64, wide.data(), DType::BF16, back.data(), all.size()));
  for (size_t i = 0; i < all.size(); ++i)
    if (!std::isnan(wide[i])) {
      ASSERT_EQ(back[i], all[i]);
    }
}

TEST(FloatConvert, RefusesIntegers) {
  int32_t value = 1;
  float out = 0;
  EXPECT_FALSE(convertFloats(DType::I32, &value, DType::F32, &out, 1));
  EXPECT_FALSE(convertFloats(DType::F32, &out, DType::I8, &value, 1));
}

} // namespace
} // namespace lmc
