// Loads and stores N elements of global or shared memory in words of up to 16 bytes.
#pragma once

#include "lmc/platform.cuh"

namespace lmc {

template <typename T, int N> struct Vec {
  T at[N];
};

// Holds N elements, and gives access to their bytes as words of up to 16 bytes.
template <int N, typename T> struct WordsOf {
  static constexpr int bytes = N * int(sizeof(T)), word = bytes < 16 ? bytes : 16;
  static constexpr int count = bytes / word;
  static_assert(bytes % word == 0, "whole words");
  union {
    Bits<word> words[count];
    Vec<T, N> elements;
  };
  __device__ WordsOf() {}
};

// Returns p[0..N-1]. `p` must be aligned to w = min(16, N * sizeof(T)) bytes, and N * sizeof(T)
// must be a multiple of w.
template <int N, typename T> __device__ inline Vec<T, N> load(const T *p) {
  using Words = WordsOf<N, T>;
  Words u;
#pragma unroll
  for (int i = 0; i < Words::count; ++i)
    u.words[i] = loadGlobal<Words::word>(reinterpret_cast<const u8 *>(p) + i * Words::word);
  return u.elements;
}

template <int N, typename T> __device__ inline void store(T *p, const Vec<T, N> &v) {
  using Words = WordsOf<N, T>;
  Words u;
  u.elements = v;
#pragma unroll
  for (int i = 0; i < Words::count; ++i)
    storeGlobal<Words::word>(reinterpret_cast<u8 *>(p) + i * Words::word, u.words[i]);
}

// keep() stores N elements at `p` in shared memory; kept() loads them. `p` is aligned as in load().
template <int N, typename T> __device__ inline void keep(T *p, const Vec<T, N> &v) {
  using Words = WordsOf<N, T>;
  Words u;
  u.elements = v;
#pragma unroll
  for (int i = 0; i < Words::count; ++i)
    storeShared<Words::word>(reinterpret_cast<u8 *>(p) + i * Words::word, u.words[i]);
}
template <int N, typename T> __device__ inline Vec<T, N> kept(const T *p) {
  using Words = WordsOf<N, T>;
  Words u;
#pragma unroll
  for (int i = 0; i < Words::count; ++i)
    u.words[i] = loadShared<Words::word>(reinterpret_cast<const u8 *>(p) + i * Words::word);
  return u.elements;
}

template <typename T> __device__ inline T loadOne(const T *p) { return load<1>(p).at[0]; }
template <typename T> __device__ inline void storeOne(T *p, T value) {
  store<1>(p, Vec<T, 1>{{value}});
}

} // namespace lmc
