// Reductions over the threads of a warp or block. The order is fixed by the number of threads,
// so that the same values give the same bits every time.
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
struct Maximum { // NaN where either is
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
struct MaximumNumber { // the other where one is NaN
  __device__ static float combine(float a, float b) { return fmaxf(a, b); }
  __device__ static double combine(double a, double b) { return fmax(a, b); }
};
struct MinimumNumber {
  __device__ static float combine(float a, float b) { return fminf(a, b); }
  __device__ static double combine(double a, double b) { return fmin(a, b); }
};

// Every lane gets what `Op` makes of the warp's values: pairs of lanes that are `Width` / 2
// apart, then of those half as far, ... Each lane computes the same sums, so all get the same
// bits. `Width`, a power of two, is how many neighbouring lanes make up a group.
template <typename Op, int Width = 32, typename T> __device__ inline T reduceWarp(T value) {
#pragma unroll
  for (int distance = Width / 2; distance > 0; distance /= 2)
    value = Op::combine(value, T(__shfl_xor_sync(0xffffffffu, value, distance)));
  return value;
}

// A block's reduction is in two steps with a __syncthreads() between them, which several
// reductions share: each warp puts its total into `totals`, one for each warp; then every
// thread combines them. `totals` may be written again behind the next barrier.
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
    // The smallest power of two that is no less than Warps; lanes beyond it do the same.
    constexpr int width = Warps <= 8 ? 8 : Warps <= 16 ? 16 : 32;
    const int lane = int(threadIdx.x % width);
    if constexpr (Warps == width) {
      return reduceWarp<Op, width>(totals[lane]);
    } else {
      // The first warps take the ones beyond half the width as well.
      T value = totals[lane % (width / 2)];
      if (lane % (width / 2) + width / 2 < Warps)
        value = Op::combine(value, totals[lane % (width / 2) + width / 2]);
      return reduceWarp<Op, width / 2>(value);
    }
  }
}

// Groups of `Lanes` neighbouring threads hold N values each for the same columns; those of group
// 0 get what `Op` makes of all groups' values: groups `Groups` / 2 apart first. `Groups` is a
// power of two; `shared` has room for Groups * Lanes * N values. For all threads of the block,
// which may write `shared` again afterwards.
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

// The online softmax keeps, of the values seen so far, their maximum m and the sum s of
// exp(value - m). Where the maximum becomes `to`, s becomes this. `to` is no less than `from`,
// which is -inf where there was no value yet (s is 0 then). (Milakov, Gimelshein, "Online
// normalizer calculation for softmax", arxiv.org/abs/1805.02867)
__device__ inline float rescaleSum(float s, float from, float to) {
  return from == to ? s : s * expf(from - to);
}

// exp(x) of x <= 0 as a summand: to (3 + |x|) units in the last place, so the smaller the term
// the less it matters; 0 below 2^-126.
__device__ inline float expBelow(float x) { return exp2Fast(x * 1.44269504f); }

} // namespace lmc
