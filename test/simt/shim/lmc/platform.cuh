// Replaces compiler/targets/cuda/device/platform.cuh when the executor compiles a kernel: the names
// and their meaning are the same, and the functions call the executor's Machine table. That file
// also states the rules for device code.
#pragma once

namespace lmc {

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

struct bf16 {
  u16 bits;
};

__device__ inline float toFloat(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }

// Rounds like the instruction cvt.rn.bf16.f32: to nearest even, and every NaN becomes 0x7fff.
__device__ inline bf16 toBf16(float x) {
  u32 word = __float_as_uint(x);
  if (x != x)
    return {u16(0x7fff)};
  return {u16((word + 0x7fffu + (word >> 16 & 1u)) >> 16)};
}

struct f16 {
  u16 bits;
};

__device__ inline float toFloat(f16 x) {
  const u32 sign = u32(x.bits) >> 15 << 31, size = u32(x.bits & 0x7fffu) << 13;
  if (size < 1u << 23) { // below 2^-14: mantissa * 2^-24
    const float small = float(size >> 13) * 5.9604644775390625e-08f;
    return __uint_as_float(sign | __float_as_uint(small));
  }
  return __uint_as_float(sign | (size + (size < 31u << 23 ? 112u << 23 : 224u << 23)));
}

// Rounds like the instruction cvt.rn.f16.f32: to nearest even, and every NaN becomes 0x7fff.
__device__ inline f16 toF16(float x) {
  const u32 word = __float_as_uint(x), sign = word >> 16 & 0x8000u, size = word & 0x7fffffffu;
  if (x != x)
    return {u16(0x7fff)};
  if (size >= 143u << 23) // 65536
    return {u16(sign | 0x7c00u)};
  if (size < 113u << 23) // 2^-14: the last bit of 0.5 is that of f16
    return {u16(sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000u))};
  return {u16(sign | ((size - (112u << 23) + 0xfffu + (size >> 13 & 1u)) >> 13))};
}

struct e4m3 {
  u8 bits;
};
struct e5m2 {
  u8 bits;
};

// Rounds |x| as f16 is rounded above: `Mantissa` bits, from 2^Smallest on normal. What is more than the
// code `largest` becomes it, and NaN becomes 0x7f.
template <int Mantissa, int Smallest> __device__ inline u8 toEightBits(float x, u32 largest) {
  const u32 word = __float_as_uint(x), sign = word >> 24 & 0x80u, size = word & 0x7fffffffu;
  if (x != x)
    return 0x7f;
  constexpr int kShift = 23 - Mantissa;
  constexpr u32 kUnit = u32(127 + Smallest + kShift) << 23; // its last bit is that of small codes
  u32 code;
  if (size < u32(127 + Smallest) << 23)
    code = __float_as_uint(__uint_as_float(size) + __uint_as_float(kUnit)) - kUnit;
  else
    code = (size - (u32(126 + Smallest) << 23) + (1u << (kShift - 1)) - 1u + (size >> kShift & 1u)) >>
           kShift;
  return u8(sign | (code < largest ? code : largest));
}
__device__ inline e4m3 toE4M3(float x) { return {toEightBits<3, -6>(x, 0x7e)}; }
__device__ inline e5m2 toE5M2(float x) { return {toEightBits<2, -14>(x, 0x7b)}; }

__device__ inline float toFloat(e5m2 x) { return toFloat(f16{u16(u16(x.bits) << 8)}); }

__device__ inline float toFloat(e4m3 x) {
  const u32 size = x.bits & 0x7fu;
  if (size == 0x7fu)
    return __uint_as_float(0x7fffffffu);
  const float y = size < 8u ? float(size) * 0.001953125f // below 2^-6: mantissa * 2^-9
                            : __uint_as_float((size << 20) + (120u << 23));
  return x.bits & 0x80u ? -y : y;
}

__device__ inline u32 packBf16(float low, float high) {
  return u32(toBf16(low).bits) | u32(toBf16(high).bits) << 16;
}

__device__ inline float exp2Fast(float x) {
  float y = __builtin_exp2f(x);
  return y < 1.17549435e-38f ? 0.0f : y;
}

__device__ inline float maximum(float a, float b) { return a > b || a != a ? a : b; }
__device__ inline float minimum(float a, float b) { return a < b || a != a ? a : b; }

template <int Bytes> struct Bits;
template <> struct Bits<1> {
  u8 word;
};
template <> struct Bits<2> {
  u16 word;
};
template <> struct Bits<4> {
  u32 word;
};
template <> struct alignas(8) Bits<8> {
  u32 words[2];
};
template <> struct alignas(16) Bits<16> {
  u32 words[4];
};

template <int Bytes> __device__ inline Bits<Bytes> loadGlobal(const void *from) {
  Bits<Bytes> v;
  lmcMachine->load(from, &v, Bytes);
  return v;
}
template <int Bytes> __device__ inline void storeGlobal(void *to, Bits<Bytes> v) {
  lmcMachine->store(to, &v, Bytes);
}

__device__ inline u8 *sharedMemory() {
  return static_cast<u8 *>(__builtin_assume_aligned(lmcMachine->shared, 128));
}

template <int Bytes> __device__ inline Bits<Bytes> loadShared(const void *from) {
  return *static_cast<const Bits<Bytes> *>(from);
}
template <int Bytes> __device__ inline void storeShared(void *to, Bits<Bytes> v) {
  *static_cast<Bits<Bytes> *>(to) = v;
}

__device__ inline u32 sharedAddress(const void *shared) {
  return u32(static_cast<const u8 *>(shared) - lmcMachine->shared) + lmcMachine->sharedBase;
}

__device__ inline void copyAsync16(u32 to, const void *from, bool valid) {
  lmcMachine->copyAsync(lmcMachine->shared + i32(to - lmcMachine->sharedBase), from, valid);
}
__device__ inline void copyAsyncCommit() { lmcMachine->copyAsyncCommit(); }
template <int Pending> __device__ inline void copyAsyncWait() {
  lmcMachine->copyAsyncWait(Pending);
}

__device__ inline void loadMatrix4(u32 (&to)[4], u32 from, LMC_PLACE) {
  lmcMachine->collective(simt::Collective::LoadMatrix, 0xffffffffu, u64(&to[0]),
                         u64(lmcMachine->shared + i32(from - lmcMachine->sharedBase)), false, {file, line});
}
__device__ inline void loadMatrix4Transposed(u32 (&to)[4], u32 from, LMC_PLACE) {
  lmcMachine->collective(simt::Collective::LoadMatrix, 0xffffffffu, u64(&to[0]),
                         u64(lmcMachine->shared + i32(from - lmcMachine->sharedBase)), true, {file, line});
}

__device__ inline void multiplyAdd16x8x16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1,
                                          LMC_PLACE) {
  simt::Product product{&d[0], &a[0], b0, b1};
  lmcMachine->collective(simt::Collective::MultiplyAdd, 0xffffffffu, u64(&product), 0, false,
                         {file, line});
}

constexpr int kTileRowBytes = 128, kTurnedTileBytes = 64 * kTileRowBytes;
__device__ constexpr int tileOffset(int row, int chunk) {
  return row * kTileRowBytes + ((chunk ^ (row & 7)) << 4);
}

template <int Bytes> __device__ inline void storeForProducts(u32 to, Bits<Bytes> v) {
  lmcMachine->storeForProducts(to, &v, Bytes);
}
__device__ inline void seenByProducts() { lmcMachine->seenByProducts(); }

template <int Threads> __device__ inline void barrierOf(int id, LMC_PLACE) {
  lmcMachine->namedBarrier(id, Threads, {file, line});
}

struct GroupProducts {
  void begin() { lmcMachine->groupBegin(); }
  void commit() { lmcMachine->groupCommit(); }
  template <int Pending> void wait(LMC_PLACE) { lmcMachine->groupWait(Pending, {file, line}); }
  template <int Pending = 0, int Size> void finish(float (&)[Size], LMC_PLACE) {
    lmcMachine->groupWait(Pending, {file, line});
  }
  template <int N, bool TurnedA, bool TurnedB, bool Fresh = false>
  void add(float (&d)[N / 2], u32 a, u32 b, LMC_PLACE) {
    const simt::GroupProduct product{&d[0], nullptr, a, b, N, TurnedA, TurnedB, Fresh};
    lmcMachine->groupAdd(&product, {file, line});
  }
  template <int N, bool IsE4M3, bool Fresh = false>
  void addCodes(float (&d)[N / 2], u32 a, u32 b, LMC_PLACE) {
    const simt::GroupProduct product{&d[0], nullptr, a, b, N, false, false, Fresh,
                                     IsE4M3 ? simt::GroupProduct::E4M3 : simt::GroupProduct::E5M2};
    lmcMachine->groupAdd(&product, {file, line});
  }
  template <int N, bool TurnedB, bool Fresh = false>
  void add(float (&d)[N / 2], const u32 (&a)[4], u32 b, LMC_PLACE) {
    const simt::GroupProduct product{&d[0], &a[0], 0, b, N, false, TurnedB, Fresh};
    lmcMachine->groupAdd(&product, {file, line});
  }
};

} // namespace lmc
