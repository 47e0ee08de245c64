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

__device__ inline u32 packBf16(float low, float high) {
  return u32(toBf16(low).bits) | u32(toBf16(high).bits) << 16;
}

__device__ inline float exp2Fast(float x) {
  float y = __builtin_exp2f(x);
  return y < 1.17549435e-38f ? 0.0f : y;
}

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

__device__ inline u32 sharedAddress(const void *shared) {
  return u32(static_cast<const u8 *>(shared) - lmcMachine->shared);
}

__device__ inline void copyAsync16(u32 to, const void *from, bool valid) {
  lmcMachine->copyAsync(lmcMachine->shared + i32(to), from, valid);
}
__device__ inline void copyAsyncCommit() { lmcMachine->copyAsyncCommit(); }
template <int Pending> __device__ inline void copyAsyncWait() {
  lmcMachine->copyAsyncWait(Pending);
}

__device__ inline void loadMatrix4(u32 (&to)[4], u32 from, LMC_PLACE) {
  lmcMachine->collective(simt::Collective::LoadMatrix, 0xffffffffu, u64(&to[0]),
                         u64(lmcMachine->shared + i32(from)), false, {file, line});
}
__device__ inline void loadMatrix4Transposed(u32 (&to)[4], u32 from, LMC_PLACE) {
  lmcMachine->collective(simt::Collective::LoadMatrix, 0xffffffffu, u64(&to[0]),
                         u64(lmcMachine->shared + i32(from)), true, {file, line});
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

__device__ inline void seenByProducts() {}

// Each thread computes its own elements of d, as late as it may: when it waits for them. A tile that
// is written too early, or d that is read too early, gives wrong results.
struct GroupProducts {
  struct Product {
    float *d;
    u32 a, b;
    int columns, row;
    bool turnedA, turnedB;
  };
  static constexpr int kMost = 32;
  Product pending[kMost];
  int rows = 0, done = 0, begun = 0; // rows that are committed; products that are done, and begun

  void begin() {}
  void commit() { ++rows; }
  template <int Pending> void wait() {
    for (; done < begun && pending[done % kMost].row + Pending < rows; ++done)
      run(pending[done % kMost]);
  }
  template <int Size> void finish(float (&)[Size]) { wait<0>(); }
  template <int N, bool TurnedA, bool TurnedB> void add(float (&d)[N / 2], u32 a, u32 b) {
    if (begun - done == kMost)
      lmcMachine->trap();
    pending[begun++ % kMost] = {&d[0], a, b, N, rows, TurnedA, TurnedB};
  }

  // Returns element `at` across the sum of term k: of a row of a, or a column of b.
  static float element(u32 tile, bool turned, int at, int k) {
    u32 address = tile;
    if (turned)
      address += at / 64 * kTurnedTileBytes + k * kTileRowBytes + at % 64 * 2;
    else
      address += at * kTileRowBytes + k * 2;
    address ^= (address >> 7 & 7) << 4;
    return toFloat(*reinterpret_cast<const bf16 *>(lmcMachine->shared + address));
  }
  static void run(const Product &product) {
    const int thread = int(lmcMachine->thread.x) % 128;
    float a[2][16];
    const int row = thread / 32 * 16 + thread % 32 / 4;
    for (int half = 0; half < 2; ++half)
      for (int k = 0; k < 16; ++k)
        a[half][k] = element(product.a, product.turnedA, row + 8 * half, k);
    for (int block = 0; block < product.columns / 8; ++block)
      for (int odd = 0; odd < 2; ++odd) {
        const int column = 8 * block + thread % 4 * 2 + odd;
        float sums[2] = {};
        for (int k = 0; k < 16; ++k) {
          const float b = element(product.b, product.turnedB, column, k);
          sums[0] += a[0][k] * b;
          sums[1] += a[1][k] * b;
        }
        for (int half = 0; half < 2; ++half)
          product.d[4 * block + 2 * half + odd] += sums[half];
      }
  }
};

} // namespace lmc
