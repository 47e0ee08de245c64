// Converts elements of matrices from the type in memory to the type of arithmetic, and back.
#pragma once

#include "ground/plan/FloatConvert.h"

#include <bit>
#include <cstdint>

namespace lmc::cpu {

struct StoredBf16 {
  uint16_t bits;
};

inline float widened(float x) { return x; }
inline double widened(double x) { return x; }
inline float widened(StoredBf16 x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); }

inline void narrow(float &to, float x) { to = x; }
inline void narrow(double &to, double x) { to = x; }
inline void narrow(StoredBf16 &to, float x) { to.bits = toBFloat16(x); }

// The type of arithmetic on values of type T.
template <typename T> using RealOf = decltype(widened(T()));

} // namespace lmc::cpu
