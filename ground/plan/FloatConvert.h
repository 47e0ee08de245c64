// Conversions between the float types of a plan.
#pragma once

#include "plan_generated.h"

#include <bit>
#include <cstdint>

namespace lmc {

// bf16 is the upper 16 bits of an f32. `toBFloat16` rounds to nearest even; a NaN stays a NaN, as
// its bit 6 is set. Both can be part of a loop in vector code: the branch is a selection.
inline uint16_t toBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? (bits >> 16) | 0x40 : rounded);
}
inline float fromBFloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// f16 is IEEE 754's binary16: 5 bits of exponent, 10 of mantissa; at most 65504, the smallest number
// above 0 is 2^-24. `toFloat16` rounds to nearest even, beyond 65504 to infinity; a NaN stays a NaN.
uint16_t toFloat16(float value);
float fromFloat16(uint16_t bits);

// Converts `count` elements and rounds to nearest even where `to` is narrower than `from`. f64 to
// bf16 or f16 is rounded once, not through f32. Returns false if either type is not a float type.
bool convertFloats(plan::DType from, const void *source, plan::DType to, void *target,
                   uint64_t count);

} // namespace lmc
