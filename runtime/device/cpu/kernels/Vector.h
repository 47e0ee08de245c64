// Vectors of the instruction set that this file is compiled for, as GCC vector types.
#pragma once

#include <cstdint>
#include <cstring>

#ifndef LMC_ISA
#error "compile through runtime/device/layer.cmake, which names the instruction set"
#endif

#define LMC_INLINE inline __attribute__((always_inline))

namespace lmc::cpu::LMC_ISA {

#if defined(__AVX512F__)
inline constexpr int kRegisterBytes = 64;
inline constexpr int kRegisters = 32;
#elif defined(__AVX2__)
inline constexpr int kRegisterBytes = 32;
inline constexpr int kRegisters = 16;
#elif defined(__aarch64__)
inline constexpr int kRegisterBytes = 16;
inline constexpr int kRegisters = 32;
#else
inline constexpr int kRegisterBytes = 16;
inline constexpr int kRegisters = 16;
#endif

struct Bf16 {
  uint16_t bits;
};

template <typename R> struct VectorOf;
template <> struct VectorOf<float> {
  typedef float Type __attribute__((vector_size(kRegisterBytes)));
  typedef float Unaligned __attribute__((vector_size(kRegisterBytes), aligned(4), may_alias));
  typedef int32_t Int __attribute__((vector_size(kRegisterBytes)));
  using Lane = int32_t;
};
template <> struct VectorOf<double> {
  typedef double Type __attribute__((vector_size(kRegisterBytes)));
  typedef double Unaligned __attribute__((vector_size(kRegisterBytes), aligned(8), may_alias));
  typedef int64_t Int __attribute__((vector_size(kRegisterBytes)));
  using Lane = int64_t;
};

template <typename R> using V = typename VectorOf<R>::Type; // fills one register
template <typename R> using VInt = typename VectorOf<R>::Int;
// The number of elements of type R in one register.
template <typename R> inline constexpr int kWidth = kRegisterBytes / int(sizeof(R));

// The type of arithmetic on elements of type T: float for Bf16, otherwise T.
template <typename T> struct ArithmeticOf { using Type = T; };
template <> struct ArithmeticOf<Bf16> { using Type = float; };
template <typename T> using Arithmetic = typename ArithmeticOf<T>::Type;

// Returns x in every lane. x - 0 is x, even for x = -0, so the compiler emits only a broadcast.
template <typename R> LMC_INLINE V<R> splat(R x) { return x - V<R>{}; }

template <typename R> LMC_INLINE V<R> load(const R *p) {
  return *reinterpret_cast<const typename VectorOf<R>::Unaligned *>(p);
}
template <typename R> LMC_INLINE void store(R *p, V<R> x) {
  *reinterpret_cast<typename VectorOf<R>::Unaligned *>(p) = x;
}

// bf16 is the upper half of an f32. store() rounds to nearest even, and a NaN stays a NaN.
typedef uint16_t HalfVector __attribute__((vector_size(kRegisterBytes / 2)));
typedef uint16_t HalfUnaligned
    __attribute__((vector_size(kRegisterBytes / 2), aligned(2), may_alias));
typedef uint32_t WordVector __attribute__((vector_size(kRegisterBytes)));

LMC_INLINE V<float> load(const Bf16 *p) {
  HalfVector half = *reinterpret_cast<const HalfUnaligned *>(p);
  WordVector word = __builtin_convertvector(half, WordVector) << 16;
  return (V<float>)word;
}
LMC_INLINE void store(Bf16 *p, V<float> x) {
  WordVector word = (WordVector)x;
  WordVector rounded = (word + (0x7fffu + ((word >> 16) & 1u))) >> 16;
  WordVector quiet = (word >> 16) | 0x40u;
  WordVector result = x == x ? rounded : quiet;
  *reinterpret_cast<HalfUnaligned *>(p) = __builtin_convertvector(result, HalfVector);
}

LMC_INLINE float toReal(float x) { return x; }
LMC_INLINE double toReal(double x) { return x; }
LMC_INLINE float toReal(Bf16 x) {
  uint32_t word = uint32_t(x.bits) << 16;
  float result;
  memcpy(&result, &word, 4);
  return result;
}
LMC_INLINE void fromReal(float x, float &to) { to = x; }
LMC_INLINE void fromReal(double x, double &to) { to = x; }
LMC_INLINE void fromReal(float x, Bf16 &to) {
  uint32_t word;
  memcpy(&word, &x, 4);
  to.bits = x == x ? uint16_t((word + (0x7fffu + ((word >> 16) & 1u))) >> 16)
                   : uint16_t((word >> 16) | 0x40u);
}

template <typename R> LMC_INLINE V<R> maximum(V<R> a, V<R> b) { return a > b ? a : b; }

// Returns {0, 1, 2, ...}.
template <typename R> LMC_INLINE VInt<R> iota() {
  VInt<R> result{};
  for (int i = 0; i < kWidth<R>; ++i)
    result[i] = i;
  return result;
}

// The constants of exp2(), which computes 2^x for x <= 127 (1023 in f64). The result is 0 for x
// below the normal range, and NaN for NaN.
//
// x = n + f with integer n and |f| <= 1/2. 2^f is computed as 1 + f g(f). The polynomial g
// interpolates (2^f - 1) / f at the Chebyshev nodes of [-1/2, 1/2]. Its relative error is 5e-9 in
// f32 and 2e-19 in f64, less than that of rounding.
template <typename R> struct Exp2;
template <> struct Exp2<float> {
  static constexpr float kRound = 12582912.0f; // 1.5 * 2^23: x + kRound has n in its low bits
  static constexpr int32_t kRoundBits = 0x4b400000;
  static constexpr float kLowest = -126.0f;
  static constexpr int kBias = 127, kMantissa = 23, kDegree = 6;
  static constexpr float kTerms[] = {1.0f,
                                     0.693147188026228781f,
                                     0.240226507605681269f,
                                     0.0555035711421907782f,
                                     0.00961808255727785149f,
                                     0.00133908633646712344f,
                                     0.000154531629451206902f};
};
template <> struct Exp2<double> {
  static constexpr double kRound = 6755399441055744.0; // 1.5 * 2^52, used in the same way as in f32
  static constexpr int64_t kRoundBits = 0x4338000000000000;
  static constexpr double kLowest = -1022.0;
  static constexpr int kBias = 1023, kMantissa = 52, kDegree = 12;
  static constexpr double kTerms[] = {1.0,
                                      0.693147180559945309,
                                      0.240226506959100712,
                                      0.055504108664821627,
                                      0.00961812910762847949,
                                      0.00133335581464064707,
                                      0.000154035303933707334,
                                      0.0000152527338415567726,
                                      1.32154868087055628e-6,
                                      1.01780570877339411e-7,
                                      7.05489730415549928e-9,
                                      4.45581790833606449e-10,
                                      2.57293241773623042e-11};
};

template <typename R> LMC_INLINE V<R> exp2(V<R> x) {
  using C = Exp2<R>;
  V<R> bounded = x < C::kLowest ? splat<R>(C::kLowest) : x;
  V<R> shifted = bounded + C::kRound;
  VInt<R> n = (VInt<R>)shifted - C::kRoundBits;
  V<R> f = bounded - (shifted - C::kRound);
  V<R> p = splat<R>(C::kTerms[C::kDegree]);
#pragma GCC unroll 16
  for (int i = C::kDegree - 1; i >= 0; --i)
    p = p * f + C::kTerms[i];
  V<R> power = (V<R>)((n + C::kBias) << C::kMantissa);
  return x < C::kLowest ? V<R>{} : p * power;
}

// Transposes a square of registers: rows[r][c] becomes rows[c][r].
template <typename R> LMC_INLINE void transpose(V<R> (&rows)[kWidth<R>]) {
  constexpr int kN = kWidth<R>;
  // Each step swaps the upper right and lower left quarter of 2s x 2s blocks, for s = N/2, ..., 1.
#pragma GCC unroll 8
  for (int s = kN / 2; s >= 1; s /= 2) {
    VInt<R> low{}, high{};
#pragma GCC unroll 16
    for (int x = 0; x < kN; ++x) {
      low[x] = (x & s) ? kN + x - s : x;
      high[x] = (x & s) ? kN + x : x + s;
    }
#pragma GCC unroll 16
    for (int r = 0; r < kN; ++r) {
      if (r & s)
        continue;
      V<R> a = rows[r], b = rows[r + s];
      rows[r] = __builtin_shuffle(a, b, low);
      rows[r + s] = __builtin_shuffle(a, b, high);
    }
  }
}

} // namespace lmc::cpu::LMC_ISA
