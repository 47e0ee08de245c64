// What arith and math say that CUDA's own functions don't.
#pragma once

#include "lmc/platform.cuh"

namespace lmc {

template <typename T> __device__ inline bool isOrdered(T a, T b) { return a == a && b == b; }

// The larger; NaN where either is. (fmaxf and fminf leave NaN out.)
__device__ inline float maximum(float a, float b) { return a > b || a != a ? a : b; }
__device__ inline float minimum(float a, float b) { return a < b || a != a ? a : b; }
__device__ inline double maximum(double a, double b) { return a > b || a != a ? a : b; }
__device__ inline double minimum(double a, double b) { return a < b || a != a ? a : b; }

// An index from memory, moved into [0, extent): a wrong one gives wrong numbers but reads
// nothing else.
__device__ inline u32 clampIndex(i64 index, u32 extent) {
  return index < 0 ? 0 : index >= i64(extent) ? extent - 1 : u32(index);
}

} // namespace lmc
