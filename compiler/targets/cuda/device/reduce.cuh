// Reductions over the threads of a warp or block. The order depends only on the number of threads,
// so that the same values always give the same bits.
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
struct Maximum { // NaN if either is NaN
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
struct MaximumNumber { // the other value if one is NaN
  __device__ static float combine(float a, float b) { return fmaxf(a, b); }
  __device__ static double combine(double a, double b) { return fmax(a, b); }
};
struct MinimumNumber {
  __device__ static float combine(float a, float b) { return fminf(a, b); }
  __device__ static double combine(double a, double b) { return fmin(a, b); }
};

// Returns, in every lane, the reduction by `Op` of the values of a group of `Width` neighbouring
// lanes; `Width` is a power of two. Lanes that are `Width` / 2 apart are combined first, then those
// half as far apart, and so on. Every lane combines the same pairs, so all get the same bits.
template <typename Op, int Width = 32, typename T> __device__ inline T reduceWarp(T value) {
#pragma unroll
  for (int distance = Width / 2; distance > 0; distance /= 2)
    value = Op::combine(value, T(__shfl_xor_sync(0xffffffffu, value, distance)));
  return value;
}

// The reduction of a block has two steps with a __syncthreads() between them, which several
// reductions can share: each warp puts its total into `totals`, one element per warp; then every
// thread combines all totals. `totals` may be written again after the next barrier.
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
    // The smallest power of two that is at least Warps, but at least 8; the groups of lanes all
    // compute the same total.
    constexpr int width = Warps <= 8 ? 8 : Warps <= 16 ? 16 : 32;
    const int lane = int(threadIdx.x % width);
    if constexpr (Warps == width) {
      return reduceWarp<Op, width>(totals[lane]);
    } else {
      // The lanes of the lower half also combine the totals beyond half the width.
      T value = totals[lane % (width / 2)];
      if (lane % (width / 2) + width / 2 < Warps)
        value = Op::combine(value, totals[lane % (width / 2) + width / 2]);
      return reduceWarp<Op, width / 2>(value);
    }
  }
}

// Each group of `Lanes` neighbouring threads holds N values per thread for the same columns. The
// threads of group 0 get the reduction by `Op` over all groups: groups `Groups` / 2 apart are
// combined first. `Groups` is a power of two; `shared` has room for Groups * Lanes * N values. All
// threads of the block must call it, and may write `shared` again afterwards.
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

// The online softmax keeps the maximum m of the values seen so far and the sum s of exp(value - m).
// When the maximum changes from `from` to `to`, this is the new sum. `to` is at least `from`;
// `from` is -inf, and s is 0, when there was no value yet. (Milakov, Gimelshein, "Online normalizer
// calculation for softmax", arxiv.org/abs/1805.02867)
__device__ inline float rescaleSum(float s, float from, float to) {
  return from == to ? s : s * expf(from - to);
}

// Returns exp(x) of x <= 0, for use as a summand: the error is (3 + |x|) units in the last place,
// so it grows only as the term becomes small; results below 2^-126 are 0.
__device__ inline float expBelow(float x) { return exp2Fast(x * 1.44269504f); }

} // namespace lmc
