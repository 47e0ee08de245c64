#include "runtime/plan/FloatConvert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace lmc {

namespace {
struct BFloat16 {
  uint16_t bits;
};
} // namespace

uint16_t toBFloat16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000)
    return static_cast<uint16_t>((bits >> 16) | 0x40); // NaN stays NaN: bit 6 is set
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

float fromBFloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Converts f64 to f32 with rounding to odd: if bits are lost, the last bit of the result is 1. A
// second rounding, from f32 to bf16, then cannot mistake the value for a tie.
static float roundToOdd(double value) {
  auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) == value || std::isnan(value))
    return narrow;
  uint32_t bits = std::bit_cast<uint32_t>(narrow);
  if (bits & 1)
    return narrow;
  // `narrow` is not exact and its last bit is 0. The result is the f32 next to it in the direction
  // of `value`, whose last bit is 1.
  bool grew = std::fabs(static_cast<double>(narrow)) > std::fabs(value);
  return std::bit_cast<float>(grew ? bits - 1 : bits + 1);
}

template <typename From, typename To> static To cast(From value) {
  if constexpr (std::is_same_v<From, To>)
    return value;
  else if constexpr (std::is_same_v<From, BFloat16>)
    return static_cast<To>(fromBFloat16(value.bits));
  else if constexpr (!std::is_same_v<To, BFloat16>)
    return static_cast<To>(value);
  else if constexpr (std::is_same_v<From, double>)
    return {toBFloat16(roundToOdd(value))};
  else
    return {toBFloat16(value)};
}

template <typename From, typename To>
static bool convert(const void *source, void *target, uint64_t count) {
  // memcpy is used because a tensor in a file may start at any byte.
  for (uint64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, static_cast<const char *>(source) + i * sizeof(From), sizeof(From));
    To result = cast<From, To>(value);
    std::memcpy(static_cast<char *>(target) + i * sizeof(To), &result, sizeof(To));
  }
  return true;
}

template <typename From>
static bool convertFrom(const void *source, plan::DType to, void *target, uint64_t count) {
  switch (to) {
  case plan::DType::F32:
    return convert<From, float>(source, target, count);
  case plan::DType::BF16:
    return convert<From, BFloat16>(source, target, count);
  case plan::DType::F64:
    return convert<From, double>(source, target, count);
  default:
    return false;
  }
}

bool convertFloats(plan::DType from, const void *source, plan::DType to, void *target,
                   uint64_t count) {
  switch (from) {
  case plan::DType::F32:
    return convertFrom<float>(source, to, target, count);
  case plan::DType::BF16:
    return convertFrom<BFloat16>(source, to, target, count);
  case plan::DType::F64:
    return convertFrom<double>(source, to, target, count);
  default:
    return false;
  }
}

} // namespace lmc
