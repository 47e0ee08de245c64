#include "ground/plan/FloatConvert.h"

#include <gtest/gtest.h>

#include <algorithm>
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

// An f16 is mantissa * 2^exponent; the distance of two neighbours is a power of two.
TEST(FloatConvert, RoundsToTheNearestFloat16TiesToEven) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) { // all finite, not negative
    const float x = fromFloat16(static_cast<uint16_t>(bits));
    const int exponent = static_cast<int>(bits >> 10), mantissa = static_cast<int>(bits & 0x3FF);
    EXPECT_EQ(x, exponent == 0 ? std::ldexp(float(mantissa), -24)
                               : std::ldexp(float(1024 + mantissa), exponent - 25));
    const float next = bits == 0x7BFF ? 65536 : fromFloat16(static_cast<uint16_t>(bits + 1));
    const float tie = (x + next) / 2;
    const uint32_t even = bits + (bits & 1);
    EXPECT_EQ(toFloat16(x), bits);
    EXPECT_EQ(toFloat16(tie), even) << x;
    EXPECT_EQ(toFloat16(std::nextafter(tie, 0.0f)), bits) << x;
    EXPECT_EQ(toFloat16(std::nextafter(tie, 1e9f)), bits + 1) << x; // 0x7C00 is infinity
    EXPECT_EQ(toFloat16(-tie), even | 0x8000);
    EXPECT_EQ(fromFloat16(static_cast<uint16_t>(bits | 0x8000)), -x);
  }
}

TEST(FloatConvert, KeepsInfinityAndNaNInFloat16) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (float large : {infinity, 65536.0f, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(toFloat16(large), 0x7C00);
    EXPECT_EQ(toFloat16(-large), 0xFC00);
  }
  EXPECT_EQ(fromFloat16(0xFC00), -infinity);
  EXPECT_TRUE(std::isnan(fromFloat16(toFloat16(std::bit_cast<float>(0x7F800001u)))));
}

TEST(FloatConvert, RoundsDoublesToFloat16Once) {
  const double value = 1 + 0x1p-11 + 0x1p-40; // above a tie that rounding to f32 would make
  uint16_t bits = 0;
  ASSERT_TRUE(convertFloats(DType::F64, &value, DType::F16, &bits, 1));
  EXPECT_EQ(bits, 0x3C01);
}

struct EightBits {
  uint8_t (*toCode)(float);
  float (*fromCode)(uint8_t);
  int mantissa, bias;   // bits of the mantissa, bias of the exponent
  uint8_t largest, nan; // codes of the largest finite number and of NaN
};

void roundsToTheNearest(const EightBits &format) {
  const float infinity = std::numeric_limits<float>::infinity();
  auto number = [&](int code) {
    const int implicit = 1 << format.mantissa, exponent = code / implicit;
    return std::ldexp(float(code % implicit + (exponent ? implicit : 0)),
                      std::max(exponent, 1) - format.bias - format.mantissa);
  };
  for (int code = 0; code <= format.largest; ++code) {
    const float x = format.fromCode(uint8_t(code));
    EXPECT_EQ(x, number(code));
    EXPECT_EQ(format.fromCode(uint8_t(code | 0x80)), -x);
    EXPECT_EQ(format.toCode(x), code);
    EXPECT_EQ(format.toCode(-x), code | 0x80);
    const bool isLast = code == format.largest;
    const float tie = (x + number(code + 1)) / 2;
    const int even = isLast ? code : code + (code & 1), next = isLast ? code : code + 1;
    EXPECT_EQ(format.toCode(tie), even) << x;
    EXPECT_EQ(format.toCode(-tie), even | 0x80) << x;
    EXPECT_EQ(format.toCode(std::nextafter(tie, 0.0f)), code) << x;
    EXPECT_EQ(format.toCode(std::nextafter(tie, infinity)), next) << x;
  }
  for (float large : {infinity, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(format.toCode(large), format.largest);
    EXPECT_EQ(format.toCode(-large), format.largest | 0x80);
  }
  for (uint32_t bits : {0x7F800001u, 0x7FC00000u, 0xFFFFFFFFu})
    EXPECT_EQ(format.toCode(std::bit_cast<float>(bits)) & 0x7F, format.nan);
  EXPECT_TRUE(std::isnan(format.fromCode(format.nan)));
}

TEST(FloatConvert, RoundsToTheNearestE4M3AndSaturates) {
  roundsToTheNearest({toE4M3, fromE4M3, 3, 7, 0x7E, 0x7F});
  EXPECT_EQ(fromE4M3(0x7E), 448);
}
TEST(FloatConvert, RoundsToTheNearestE5M2AndSaturates) {
  roundsToTheNearest({toE5M2, fromE5M2, 2, 15, 0x7B, 0x7F});
  EXPECT_EQ(fromE5M2(0x7B), 57344);
  EXPECT_EQ(fromE5M2(0x7C), std::numeric_limits<float>::infinity());
}

TEST(FloatConvert, RoundsDoublesToEightBitsOnce) {
  const double value = 1 + 0x1p-4 + 0x1p-40; // above a tie that rounding to f32 would make
  uint8_t bits = 0;
  ASSERT_TRUE(convertFloats(DType::F64, &value, DType::F8E4M3, &bits, 1));
  EXPECT_EQ(bits, 0x39);
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

TEST(FloatConvert, ScalesAreTheSmallestPowersOfTwoThatFit) {
  for (auto [format, most] :
       {std::pair(plan::DType::F8E4M3, 448.0f), {plan::DType::F8E5M2, 57344.0f}}) {
    for (float largest : {0x1p-149f, 0x1p-126f, 1e-30f, 0.7f, 1.0f, 1.75f, 1.7500001f, 447.9f,
                          448.0f, 448.1f, 57344.0f, 57345.0f, 3e38f}) {
      const float scale = eightBitScale(largest, format);
      EXPECT_EQ(std::frexp(scale, std::make_unique<int>().get()), 0.5f) << largest;
      EXPECT_LE(largest / scale, most);
      if (scale > 0x1p-126f)
        EXPECT_GT(largest / (scale / 2), most) << largest;
    }
    EXPECT_EQ(eightBitScale(0, format), 0x1p-126f);
    EXPECT_TRUE(std::isinf(eightBitScale(INFINITY, format)));
    EXPECT_TRUE(std::isnan(eightBitScale(NAN, format)));
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
