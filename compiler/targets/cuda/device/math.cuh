// Small functions that CUDA does not have, most of them of MLIR's arith and math dialects.
#pragma once

#include "lmc/platform.cuh"

namespace lmc {

template <typename T> __device__ inline bool isOrdered(T a, T b) { return a == a && b == b; }

// Return the larger or smaller value; NaN if either is NaN (CUDA's fmax and fmin ignore a NaN).
// platform.cuh has those for f32, as instructions.
__device__ inline double maximum(double a, double b) { return a > b || a != a ? a : b; }
__device__ inline double minimum(double a, double b) { return a < b || a != a ? a : b; }

// Return the value as a number that CUDA computes with.
__device__ inline float toReal(float x) { return x; }
__device__ inline double toReal(double x) { return x; }
__device__ inline float toReal(bf16 x) { return toFloat(x); }

// Returns `index` clamped to [0, extent). A wrong index then causes no read out of bounds.
__device__ inline u32 clampIndex(i64 index, u32 extent) {
  return index < 0 ? 0 : index >= i64(extent) ? extent - 1 : u32(index);
}

} // namespace lmc
