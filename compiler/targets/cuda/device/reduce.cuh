// Reduces values over a warp or thread block, in an order that depends only on the thread count.
#pragma once

#include "lmc/math.cuh"
#include "lmc/vector_io.cuh"

namespace lmc {

struct Add {
  template <typename T> __device__ static T combine(T a, T b) { return a + b; }
};
struct Multiply {
  template <typename T> __device__ static T combine(T a, T b) { return a * b; }
};
struct Maximum { // NaN if either operand is NaN
  __device__ static float combine(float a, float b) { return maximum(a, b); }
  __device__ static double combine(double a, double b) { return maximum(a, b); }
  __device__ static i32 combine(i32 a, i32 b) { return a > b ? a : b; }
  __device__ static i64 combine(i64 a, i64 b) { return a > b ? a : b; }
};
struct Minimum {
  __device__ static float combine(float a, float b) { return minimum(a, b); }
  __device__ static double combine(double a, double b) { return minimum(a, b); }
  __device__ static i32 combine(i32 a, i32 b) { return a < b ? a : b; }
  __device__ static i64 combine(i64 a, i64 b) { return a < b ? a : b; }
};
struct MaximumNumber { // returns the other operand if one is NaN
  __device__ static float combine(float a, float b) { return fmaxf(a, b); }
  __device__ static double combine(double a, double b) { return fmax(a, b); }
};
struct MinimumNumber {
  __device__ static float combine(float a, float b) { return fminf(a, b); }
  __device__ static double combine(double a, double b) { return fmin(a, b); }
};

// Returns, in every lane, the reduction by `Op` of the values of its group of `Width` neighbouring
// lanes; `Width` is a power of two. Lanes that are `Width` / 2 apart are combined first, then
// `Width` / 4, and so on. All lanes combine the same pairs, and so get the same bits.
template <typename Op, int Width = 32, typename T> __device__ inline T reduceWarp(T value) {
#pragma unroll
  for (int distance = Width / 2; distance > 0; distance /= 2)
    value = Op::combine(value, T(__shfl_xor_sync(0xffffffffu, value, distance)));
  return value;
}

// The reduction over a thread block has two steps, with a __syncthreads() between them. In step 1
// each warp stores its total in `totals`. In step 2 every thread combines all totals. `totals` may
// be written again after the next barrier.
template <typename Op, typename T> __device__ inline void putWarpTotal(T *totals, T value) {
  value = reduceWarp<Op>(value);
  if (threadIdx.x % 32 == 0)
    totals[threadIdx.x / 32] = value;
}
template <typename Op, int Warps, typename T> __device__ inline T blockTotal(const T *totals) {
  if constexpr (Warps <= 4) {
    T value = totals[0];
#pragma unroll
    for (int warp = 1; warp < Warps; ++warp)
      value = Op::combine(value, totals[warp]);
    return value;
  } else {
    // A power of two >= Warps, at least 8. Every group of `width` lanes computes the same total.
    constexpr int width = Warps <= 8 ? 8 : Warps <= 16 ? 16 : 32;
    const int lane = int(threadIdx.x % width);
    if constexpr (Warps == width) {
      return reduceWarp<Op, width>(totals[lane]);
    } else {
      // Combines the totals l and l + `width` / 2 (if it exists), where l = lane % (`width` / 2).
      T value = totals[lane % (width / 2)];
      if (lane % (width / 2) + width / 2 < Warps)
        value = Op::combine(value, totals[lane % (width / 2) + width / 2]);
      return reduceWarp<Op, width / 2>(value);
    }
  }
}

// The block has `Groups` groups of `Lanes` neighbouring threads; a thread has N values. Reduces
// over all groups the values of the threads at the same position in a group. Group 0 gets the
// result. Groups that are `Groups` / 2 apart are combined first; `Groups` is a power of two.
// `shared` has room for Groups * Lanes * N values. All threads of the block must call it, and may
// write `shared` again afterwards.
template <typename Op, int Groups, int Lanes, int N, typename T>
__device__ inline Vec<T, N> reduceGroups(Vec<T, N> value, T *shared) {
  const u32 group = threadIdx.x / Lanes;
  T *own = shared + threadIdx.x * N;
#pragma unroll
  for (int e = 0; e < N; ++e)
    own[e] = value.at[e];
  __syncthreads();
#pragma unroll
  for (int half = Groups / 2; half > 0; half /= 2) {
    if (group < u32(half)) {
#pragma unroll
      for (int e = 0; e < N; ++e)
        own[e] = value.at[e] = Op::combine(value.at[e], own[half * Lanes * N + e]);
    }
    __syncthreads();
  }
  return value;
}

// Returns the sum s of the online softmax after its maximum rises from `from` to `to`. Before the
// first value, `from` is -inf and s is 0. (Milakov, Gimelshein, "Online normalizer calculation for
// softmax", arxiv.org/abs/1805.02867)
__device__ inline float rescaleSum(float s, float from, float to) {
  return from == to ? s : s * expf(from - to);
}

// Returns exp(x) for x <= 0, with an error of (3 + |x|) units in the last place; 0 below 2^-126.
__device__ inline float expBelow(float x) { return exp2Fast(x * 1.44269504f); }

} // namespace lmc
