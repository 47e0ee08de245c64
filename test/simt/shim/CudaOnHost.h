// CUDA C++ for a host compiler. This header is included before the source of every kernel that the
// executor compiles. Two things differ from a GPU: rsqrtf and the fast functions are as exact as
// the host's, and warp collectives support only the full mask (as the rules in
// compiler/targets/cuda/device/platform.cuh require).
#pragma once

#include "MachineTable.h"

extern "C" lmc::simt::Machine *lmcMachine;

// --- The language ---------------------------------------------------------------------------
// Device functions are always inlined, as a device compiler does. Each use of a load is then an
// instruction with an address of its own.
#define __device__ __attribute__((always_inline))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __global__
#define __host__
#define __constant__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define threadIdx (lmcMachine->thread)
#define blockIdx (lmcMachine->block)
#define blockDim (lmcMachine->blockSize)
#define gridDim (lmcMachine->gridSize)
#define warpSize 32

#define LMC_VECTOR_TYPE(T, NAME, ALIGN)                                                            \
  struct alignas(2 * sizeof(T)) NAME##2 {                                                          \
    T x, y;                                                                                        \
  };                                                                                               \
  struct NAME##3 {                                                                                 \
    T x, y, z;                                                                                     \
  };                                                                                               \
  struct alignas(ALIGN) NAME##4 {                                                                  \
    T x, y, z, w;                                                                                  \
  };                                                                                               \
  inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                                       \
  inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }                               \
  inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
LMC_VECTOR_TYPE(int, int, 16)
LMC_VECTOR_TYPE(unsigned, uint, 16)
LMC_VECTOR_TYPE(float, float, 16)
LMC_VECTOR_TYPE(short, short, 8)
LMC_VECTOR_TYPE(unsigned short, ushort, 8)
LMC_VECTOR_TYPE(signed char, char, 4)
LMC_VECTOR_TYPE(unsigned char, uchar, 4)
#undef LMC_VECTOR_TYPE
struct alignas(16) double2 {
  double x, y;
};

// --- Bits -----------------------------------------------------------------------------------
template <typename To, typename From> inline To lmcBits(From from) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  return __builtin_bit_cast(To, from);
}
inline unsigned __float_as_uint(float x) { return lmcBits<unsigned>(x); }
inline int __float_as_int(float x) { return lmcBits<int>(x); }
inline float __uint_as_float(unsigned x) { return lmcBits<float>(x); }
inline float __int_as_float(int x) { return lmcBits<float>(x); }
inline long long __double_as_longlong(double x) { return lmcBits<long long>(x); }
inline double __longlong_as_double(long long x) { return lmcBits<double>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)(x)) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; ++i)
    y |= (x >> i & 1u) << (31 - i);
  return y;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  unsigned long long both = (unsigned long long)(y) << 32 | x;
  unsigned word = 0;
  for (int i = 0; i < 4; ++i) {
    unsigned nibble = selector >> 4 * i & 15, byte = unsigned(both >> 8 * (nibble & 7)) & 255;
    word |= (nibble & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
  }
  return word;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned((((unsigned long long)(high) << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((unsigned long long)(high) << 32 | low) >> (shift & 31));
}
inline unsigned __umulhi(unsigned x, unsigned y) {
  return unsigned((unsigned long long)(x)*y >> 32);
}
inline int __mulhi(int x, int y) { return int((long long)(x)*y >> 32); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return (unsigned long long)((unsigned __int128)(x)*y >> 64);
}
inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isnan(double x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline bool isfinite(double x) { return __builtin_isfinite(x); }

// --- Arithmetic -----------------------------------------------------------------------------
#define LMC_MATH1(NAME)                                                                            \
  inline double NAME(double x) { return __builtin_##NAME(x); }                                     \
  inline float NAME##f(float x) { return __builtin_##NAME##f(x); }                                 \
  inline float NAME(float x) { return __builtin_##NAME##f(x); }
#define LMC_MATH2(NAME)                                                                            \
  inline double NAME(double x, double y) { return __builtin_##NAME(x, y); }                        \
  inline float NAME##f(float x, float y) { return __builtin_##NAME##f(x, y); }                     \
  inline float NAME(float x, float y) { return __builtin_##NAME##f(x, y); }
// These are in a namespace of their own because the host's library has functions of the same names.
namespace lmcCuda {
LMC_MATH1(exp)
LMC_MATH1(exp2)
LMC_MATH1(exp10)
LMC_MATH1(expm1)
LMC_MATH1(log)
LMC_MATH1(log2)
LMC_MATH1(log10)
LMC_MATH1(log1p)
LMC_MATH1(sqrt)
LMC_MATH1(cbrt)
LMC_MATH1(sin)
LMC_MATH1(cos)
LMC_MATH1(tan)
LMC_MATH1(tanh)
LMC_MATH1(erf)
LMC_MATH1(erfc)
LMC_MATH1(fabs)
LMC_MATH1(floor)
LMC_MATH1(ceil)
LMC_MATH1(trunc)
LMC_MATH1(round)
LMC_MATH1(rint)
LMC_MATH1(nearbyint)
LMC_MATH2(pow)
LMC_MATH2(fmax)
LMC_MATH2(fmin)
LMC_MATH2(fmod)
LMC_MATH2(copysign)
LMC_MATH2(ldexp)
LMC_MATH2(atan2)
LMC_MATH2(hypot)
inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
inline void sincosf(float x, float *s, float *c) {
  *s = __builtin_sinf(x);
  *c = __builtin_cosf(x);
}
inline int abs(int x) { return x < 0 ? -x : x; }
inline float abs(float x) { return __builtin_fabsf(x); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }

#define LMC_MINMAX(T)                                                                              \
  inline T min(T x, T y) { return y < x ? y : x; }                                                 \
  inline T max(T x, T y) { return x < y ? y : x; }
LMC_MINMAX(int)
LMC_MINMAX(unsigned)
LMC_MINMAX(long)
LMC_MINMAX(unsigned long)
LMC_MINMAX(long long)
LMC_MINMAX(unsigned long long)
#undef LMC_MINMAX
inline float min(float x, float y) { return __builtin_fminf(x, y); }
inline float max(float x, float y) { return __builtin_fmaxf(x, y); }
inline double min(double x, double y) { return __builtin_fmin(x, y); }
inline double max(double x, double y) { return __builtin_fmax(x, y); }
} // namespace lmcCuda
#undef LMC_MATH1
#undef LMC_MATH2
using namespace lmcCuda;

inline float __expf(float x) { return __builtin_expf(x); }
inline float __logf(float x) { return __builtin_logf(x); }
inline float __log2f(float x) { return __builtin_log2f(x); }
inline float __sinf(float x) { return __builtin_sinf(x); }
inline float __cosf(float x) { return __builtin_cosf(x); }
inline float __powf(float x, float y) { return __builtin_powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __frsqrt_rn(float x) { return float(1.0 / __builtin_sqrt(double(x))); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __fma_rn(double x, double y, double z) { return __builtin_fma(x, y, z); }

// Converts a rounded value to an integer. As on a GPU, values out of range saturate and NaN becomes
// 0.
template <typename T> inline T lmcToInteger(double rounded, T lowest, T highest) {
  if (rounded != rounded)
    return 0;
  return rounded <= double(lowest) ? lowest : rounded >= double(highest) ? highest : T(rounded);
}
inline int __float2int_rn(float x) {
  return lmcToInteger<int>(__builtin_rintf(x), -2147483647 - 1, 2147483647);
}
inline int __float2int_rz(float x) {
  return lmcToInteger<int>(__builtin_truncf(x), -2147483647 - 1, 2147483647);
}
inline int __float2int_rd(float x) {
  return lmcToInteger<int>(__builtin_floorf(x), -2147483647 - 1, 2147483647);
}
inline int __float2int_ru(float x) {
  return lmcToInteger<int>(__builtin_ceilf(x), -2147483647 - 1, 2147483647);
}
inline unsigned __float2uint_rn(float x) {
  return lmcToInteger<unsigned>(__builtin_rintf(x), 0u, 4294967295u);
}
inline unsigned __float2uint_rz(float x) {
  return lmcToInteger<unsigned>(__builtin_truncf(x), 0u, 4294967295u);
}
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline float __ll2float_rn(long long x) { return float(x); }
inline float __double2float_rn(double x) { return float(x); }

// --- Threads together -----------------------------------------------------------------------
#define LMC_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(LMC_PLACE) {
  lmcMachine->barrier(lmc::simt::BlockVote::None, 0, {file, line});
}
inline int __syncthreads_count(int predicate, LMC_PLACE) {
  return lmcMachine->barrier(lmc::simt::BlockVote::Count, predicate, {file, line});
}
inline int __syncthreads_or(int predicate, LMC_PLACE) {
  return lmcMachine->barrier(lmc::simt::BlockVote::Or, predicate, {file, line});
}
inline int __syncthreads_and(int predicate, LMC_PLACE) {
  return lmcMachine->barrier(lmc::simt::BlockVote::And, predicate, {file, line});
}
inline void __syncwarp(unsigned mask = 0xffffffffu, LMC_PLACE) {
  lmcMachine->collective(lmc::simt::Collective::SyncWarp, mask, 0, 0, false, {file, line});
}
inline unsigned __ballot_sync(unsigned mask, int predicate, LMC_PLACE) {
  return unsigned(lmcMachine->collective(lmc::simt::Collective::Ballot, mask, predicate != 0, 0,
                                         false, {file, line}));
}
inline int __any_sync(unsigned mask, int predicate, LMC_PLACE) {
  return __ballot_sync(mask, predicate, file, line) != 0;
}
// In __all_sync, lanes whose threads have returned count as true.
inline int __all_sync(unsigned mask, int predicate, LMC_PLACE) {
  return __ballot_sync(mask, !predicate, file, line) == 0;
}

inline unsigned lmcLane() {
  const lmc::simt::Machine &m = *lmcMachine;
  return (m.thread.x + m.blockSize.x * (m.thread.y + m.blockSize.y * m.thread.z)) & 31;
}
template <typename T>
inline T lmcShuffle(unsigned mask, T value, unsigned from, const char *file, int line) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
  unsigned long long word = 0;
  __builtin_memcpy(&word, &value, sizeof(T));
  word = lmcMachine->collective(lmc::simt::Collective::Shuffle, mask, word, from, false,
                                {file, line});
  __builtin_memcpy(&value, &word, sizeof(T));
  return value;
}
template <typename T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, LMC_PLACE) {
  unsigned first = lmcLane() & ~unsigned(width - 1);
  return lmcShuffle(mask, value, first | (unsigned(lane) & unsigned(width - 1)), file, line);
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, LMC_PLACE) {
  unsigned lane = lmcLane(), from = lane ^ unsigned(lanes);
  return lmcShuffle(mask, value, from < (lane | unsigned(width - 1)) + 1 ? from : lane, file, line);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32, LMC_PLACE) {
  unsigned lane = lmcLane(), inside = lane & unsigned(width - 1);
  return lmcShuffle(mask, value, inside >= lanes ? lane - lanes : lane, file, line);
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned lanes, int width = 32, LMC_PLACE) {
  unsigned lane = lmcLane(), inside = lane & unsigned(width - 1);
  return lmcShuffle(mask, value, inside + lanes < unsigned(width) ? lane + lanes : lane, file, line);
}

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __trap() { lmcMachine->trap(); }

// lmc's device code uses no atomics (see platform.cuh). Only the tests of the executor use them.
template <typename T, typename F> inline T lmcAtomic(T *at, F next) {
  T *real = static_cast<T *>(lmcMachine->atomic(at, sizeof(T)));
  T old = *real;
  *real = next(old);
  return old;
}
template <typename T> inline T atomicAdd(T *at, T value) {
  return lmcAtomic(at, [=](T old) { return T(old + value); });
}

// --- How the executor calls a kernel --------------------------------------------------------
// Calls `kernel` with the pointers in `args`, one for each of its parameters.
template <typename... Params, typename... Values>
inline void lmcCall(void (*kernel)(Params...), void *const *args, Values... values) {
  if constexpr (sizeof...(Values) == sizeof...(Params))
    kernel(static_cast<Params>(values)...);
  else
    lmcCall(kernel, args, values..., args[sizeof...(Values)]);
}
template <typename... Params> constexpr int lmcParameters(void (*)(Params...)) {
  return sizeof...(Params);
}
