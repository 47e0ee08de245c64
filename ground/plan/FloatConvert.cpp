#include "ground/plan/FloatConvert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace lmc {

namespace {
// A number of a format that is shorter than f32, as `to` rounds and `from` reads it.
template <auto to, auto from> struct ShortFloat {
  decltype(to(0.0f)) bits;
  static ShortFloat of(float value) { return {to(value)}; }
  float wide() const { return from(bits); }
};
using BFloat16 = ShortFloat<toBFloat16, fromBFloat16>;
using Float16 = ShortFloat<toFloat16, fromFloat16>;
using E4M3 = ShortFloat<toE4M3, fromE4M3>;
using E5M2 = ShortFloat<toE5M2, fromE5M2>;
template <typename T> constexpr bool kIsShort = !std::is_floating_point_v<T>;
} // namespace

// A float format that is shorter than f32: its bits of the mantissa, the bias of its exponent, its
// largest finite number, and what a larger number and a NaN become.
struct Format {
  int mantissa, bias;
  uint32_t largest, overflow, nan;
};
static constexpr Format kFloat16{10, 15, 0x7BFF, 0x7C00, 0x7E00};
static constexpr Format kE4M3{3, 7, 0x7E, 0x7E, 0x7F};
static constexpr Format kE5M2{2, 15, 0x7B, 0x7B, 0x7F};

// Rounds the magnitude of an f32 to nearest even. The code has no jumps, so compilers can vectorise
// a loop of calls. Below its smallest normal number, a format has a fixed distance d between
// numbers, which f32 numbers in [2^23 d, 2^24 d) have, too. So adding 2^23 d to an f32 rounds it as
// the format needs. (Method: F. Giesen, "half to float done quick".)
template <Format F> static uint32_t narrow(uint32_t size) {
  constexpr int kShift = 23 - F.mantissa;
  constexpr uint32_t kSmallestNormal = uint32_t(128 - F.bias) << 23;
  constexpr float kAdded = // 2^23 d
      std::bit_cast<float>(uint32_t(127 + 1 - F.bias + kShift) << 23);
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + kAdded) -
                         std::bit_cast<uint32_t>(kAdded);
  const uint32_t normal =
      (size - (uint32_t(127 - F.bias) << 23) + ((1u << (kShift - 1)) - 1) + (size >> kShift & 1)) >>
      kShift;
  const uint32_t rounded = size < kSmallestNormal ? small : normal;
  return size > 0x7F800000 ? F.nan : rounded > F.largest ? F.overflow : rounded;
}

uint16_t toFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits >> 16 & 0x8000) | narrow<kFloat16>(bits & 0x7FFFFFFF));
}
uint8_t toE4M3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint8_t>((bits >> 24 & 0x80) | narrow<kE4M3>(bits & 0x7FFFFFFF));
}
uint8_t toE5M2(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint8_t>((bits >> 24 & 0x80) | narrow<kE5M2>(bits & 0x7FFFFFFF));
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

// Numbers of E5M2 are f16 numbers whose last eight bits are 0.
float fromE5M2(uint8_t bits) { return fromFloat16(static_cast<uint16_t>(bits << 8)); }

float fromE4M3(uint8_t bits) {
  const uint32_t sign = uint32_t{bits} >> 7 << 31, size = bits & 0x7Fu;
  const uint32_t normal = (size << 20) + (uint32_t(127 - 7) << 23);
  const uint32_t small = std::bit_cast<uint32_t>(float(int(size)) * 0x1p-9f);
  const uint32_t result = size == 0x7F ? 0x7FC00000 : size < 8 ? small : normal;
  return std::bit_cast<float>(sign | result);
}

// Converts f64 to f32, and rounds to odd: the last bit of an inexact result is 1. Such a result is
// never the middle of two numbers of a shorter format, so rounding it again cannot go the wrong
// way.
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
  case plan::DType::F8E4M3:
    return visit(E4M3());
  case plan::DType::F8E5M2:
    return visit(E5M2());
  case plan::DType::F64:
    return visit(double());
  default:
    return false;
  }
}

float eightBitScale(float largest, plan::DType format) {
  const float most = format == plan::DType::F8E4M3 ? 448 : 57344; // both are 1.75 * 2^e
  const int exponent = format == plan::DType::F8E4M3 ? 8 : 15;
  if (!(largest < std::numeric_limits<float>::infinity()))
    return largest;
  int power = largest > 0 ? std::ilogb(largest) - exponent : -126;
  power = std::max(power, -126);
  // 1.75 * 2^(power + exponent) may lie below `largest`.
  if (std::ldexp(most, power) < largest)
    ++power;
  return std::ldexp(1.0f, power);
}

bool convertFloats(plan::DType from, const void *source, plan::DType to, void *target,
                   uint64_t count) {
  return withFloat(from, [&]<typename From>(From) {
    return withFloat(to, [&]<typename To>(To) { return convert<From, To>(source, target, count); });
  });
}

} // namespace lmc
