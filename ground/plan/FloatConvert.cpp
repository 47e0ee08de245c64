#include "ground/plan/FloatConvert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace lmc {

namespace {
struct BFloat16 {
  uint16_t bits;
  static BFloat16 of(float value) { return {toBFloat16(value)}; }
  float wide() const { return fromBFloat16(bits); }
};
struct Float16 {
  uint16_t bits;
  static Float16 of(float value) { return {toFloat16(value)}; }
  float wide() const { return fromFloat16(bits); }
};
template <typename T> constexpr bool kIsShort = !std::is_floating_point_v<T>;
} // namespace

// The code has no jumps, so compilers can vectorise a loop of calls. Below 2^-14 (the smallest
// normal f16), f16 numbers are multiples of 2^-24, as f32 numbers in [0.5, 1) are. So adding 0.5 to
// an f32 rounds it as f16 needs. (Method: F. Giesen, "half to float done quick".)
uint16_t toFloat16(float value) {
  constexpr uint32_t kSmallestNormal = (127 - 14) << 23, kOverflow = (127 + 16) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 16 & 0x8000;
  const uint32_t size = bits & 0x7FFFFFFF;
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  const uint32_t normal = (size - ((127 - 15) << 23) + 0xFFF + (size >> 13 & 1)) >> 13;
  const uint32_t special = size > 0x7F800000 ? 0x7E00 : 0x7C00;
  const uint32_t result = size >= kOverflow ? special : size < kSmallestNormal ? small : normal;
  return static_cast<uint16_t>(sign | result);
}

float fromFloat16(uint16_t bits) {
  constexpr uint32_t kExponent = 0x7C00 << 13, kSmallestNormal = (127 - 14) << 23;
  const uint32_t sign = uint32_t{bits} >> 15 << 31, size = uint32_t{bits & 0x7FFFu} << 13;
  const uint32_t exponent = size & kExponent;
  const uint32_t normal = size + ((127 - 15) << 23);
  const uint32_t special = normal + ((128 - 16) << 23); // infinity or NaN
  // For an f16 x below 2^-14, makes the f32 number 2^-14 + x, and subtracts 2^-14 from it.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(size + kSmallestNormal) -
                                                 std::bit_cast<float>(kSmallestNormal));
  const uint32_t result = exponent == kExponent ? special : exponent == 0 ? small : normal;
  return std::bit_cast<float>(sign | result);
}

// Converts f64 to f32, and rounds to odd: the last bit of an inexact result is 1. Such a result is
// never the middle of two bf16 or f16 numbers, so rounding it again cannot go the wrong way.
static float roundToOdd(double value) {
  auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) == value || std::isnan(value))
    return narrow;
  uint32_t bits = std::bit_cast<uint32_t>(narrow);
  if (bits & 1)
    return narrow;
  // The result is the neighbour of `narrow` on the other side of `value`. Its last bit is 1.
  bool grew = std::fabs(static_cast<double>(narrow)) > std::fabs(value);
  return std::bit_cast<float>(grew ? bits - 1 : bits + 1);
}

template <typename From, typename To> static To cast(From value) {
  if constexpr (std::is_same_v<From, To>)
    return value;
  else if constexpr (kIsShort<From>)
    return cast<float, To>(value.wide());
  else if constexpr (!kIsShort<To>)
    return static_cast<To>(value);
  else if constexpr (std::is_same_v<From, double>)
    return To::of(roundToOdd(value));
  else
    return To::of(value);
}

template <typename From, typename To>
static bool convert(const void *source, void *target, uint64_t count) {
  // Uses memcpy, because a tensor may start at any byte of a file.
  for (uint64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, static_cast<const char *>(source) + i * sizeof(From), sizeof(From));
    To result = cast<From, To>(value);
    std::memcpy(static_cast<char *>(target) + i * sizeof(To), &result, sizeof(To));
  }
  return true;
}

// Returns visit(a value of the float type `type`), or false if `type` is no float type.
template <typename Visit> static bool withFloat(plan::DType type, const Visit &visit) {
  switch (type) {
  case plan::DType::F32:
    return visit(float());
  case plan::DType::BF16:
    return visit(BFloat16());
  case plan::DType::F16:
    return visit(Float16());
  case plan::DType::F64:
    return visit(double());
  default:
    return false;
  }
}

bool convertFloats(plan::DType from, const void *source, plan::DType to, void *target,
                   uint64_t count) {
  return withFloat(from, [&]<typename From>(From) {
    return withFloat(to, [&]<typename To>(To) { return convert<From, To>(source, target, count); });
  });
}

} // namespace lmc
