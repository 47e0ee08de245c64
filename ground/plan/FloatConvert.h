// Conversions between the float types of a plan.
#pragma once

#include "plan_generated.h"

#include <bit>
#include <cstdint>

namespace lmc {

// bf16 is the upper 16 bits of an f32. toBFloat16() rounds to nearest even. It sets bit 6 of a NaN,
// so a NaN stays a NaN. Compilers can vectorise loops of both functions.
inline uint16_t toBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? (bits >> 16) | 0x40 : rounded);
}
inline float fromBFloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// f16 is IEEE 754's binary16. toFloat16() rounds to nearest even; a NaN stays a NaN.
uint16_t toFloat16(float value);
float fromFloat16(uint16_t bits);

// The 8-bit formats of the OCP 8-bit Floating Point Specification (OFP8), revision 1.0:
//   E4M3  4 bits of exponent, 3 of mantissa, bias 7: at most 448, at least 2^-9, no infinity
//   E5M2  5 bits of exponent, 2 of mantissa, bias 15: at most 57344, at least 2^-16
// Both functions round to nearest even. A NaN stays a NaN, and what is larger than the largest
// finite number, such as infinity, becomes that number: so do cvt.rn.satfinite of PTX and
// cuBLASLt's casts.
uint8_t toE4M3(float value);
uint8_t toE5M2(float value);
float fromE4M3(uint8_t bits);
float fromE5M2(uint8_t bits);

// Returns the smallest power of two s, 2^-126 or more, with largest / s <= the largest number of
// `format`, an 8-bit float; `largest` itself if it is infinite or NaN.
float eightBitScale(float largest, plan::DType format);

// Converts `count` floats; rounds each once, to nearest even. Returns false if a type is no float.
bool convertFloats(plan::DType from, const void *source, plan::DType to, void *target,
                   uint64_t count);

} // namespace lmc
