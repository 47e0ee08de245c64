// Loads and stores N elements of global or shared memory in words of up to 16 bytes.
#pragma once

#include "lmc/platform.cuh"

namespace lmc {

template <typename T, int N> struct Vec {
  T at[N];
};

// Returns p[0..N-1]. `p` must be aligned to w = min(16, N * sizeof(T)) bytes, and N * sizeof(T)
// must be a multiple of w.
template <int N, typename T> __device__ inline Vec<T, N> load(const T *p) {
  constexpr int bytes = N * int(sizeof(T)), word = bytes < 16 ? bytes : 16;
  static_assert(bytes % word == 0, "whole words");
  union Words {
    Bits<word> words[bytes / word];
    Vec<T, N> elements;
    __device__ Words() {}
  } u;
#pragma unroll
  for (int i = 0; i < bytes / word; ++i)
    u.words[i] = loadGlobal<word>(reinterpret_cast<const u8 *>(p) + i * word);
  return u.elements;
}

template <int N, typename T> __device__ inline void store(T *p, const Vec<T, N> &v) {
  constexpr int bytes = N * int(sizeof(T)), word = bytes < 16 ? bytes : 16;
  static_assert(bytes % word == 0, "whole words");
  union Words {
    Bits<word> words[bytes / word];
    Vec<T, N> elements;
    __device__ Words() {}
  } u;
  u.elements = v;
#pragma unroll
  for (int i = 0; i < bytes / word; ++i)
    storeGlobal<word>(reinterpret_cast<u8 *>(p) + i * word, u.words[i]);
}

// Put N elements at `p` in shared memory, and take them from there. `p` is aligned as for load().
template <int N, typename T> __device__ inline void keep(T *p, const Vec<T, N> &v) {
  constexpr int bytes = N * int(sizeof(T)), word = bytes < 16 ? bytes : 16;
  static_assert(bytes % word == 0, "whole words");
  union Words {
    Bits<word> words[bytes / word];
    Vec<T, N> elements;
    __device__ Words() {}
  } u;
  u.elements = v;
#pragma unroll
  for (int i = 0; i < bytes / word; ++i)
    storeShared<word>(reinterpret_cast<u8 *>(p) + i * word, u.words[i]);
}
template <int N, typename T> __device__ inline Vec<T, N> kept(const T *p) {
  constexpr int bytes = N * int(sizeof(T)), word = bytes < 16 ? bytes : 16;
  static_assert(bytes % word == 0, "whole words");
  union Words {
    Bits<word> words[bytes / word];
    Vec<T, N> elements;
    __device__ Words() {}
  } u;
#pragma unroll
  for (int i = 0; i < bytes / word; ++i)
    u.words[i] = loadShared<word>(reinterpret_cast<const u8 *>(p) + i * word);
  return u.elements;
}

template <typename T> __device__ inline T loadOne(const T *p) { return load<1>(p).at[0]; }
template <typename T> __device__ inline void storeOne(T *p, T value) {
  store<1>(p, Vec<T, 1>{{value}});
}

} // namespace lmc
