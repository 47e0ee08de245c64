// Functions that MLIR's arith and math dialects have and CUDA does not.
#pragma once

#include "lmc/platform.cuh"

namespace lmc {

template <typename T> __device__ inline bool isOrdered(T a, T b) { return a == a && b == b; }

// Return the larger or smaller value; NaN if either is NaN (CUDA's fmax and fmin ignore a NaN).
// platform.cuh has those for f32, as instructions.
__device__ inline double maximum(double a, double b) { return a > b || a != a ? a : b; }
__device__ inline double minimum(double a, double b) { return a < b || a != a ? a : b; }

// Returns `index` clamped to [0, extent). A wrong index then causes no read out of bounds.
__device__ inline u32 clampIndex(i64 index, u32 extent) {
  return index < 0 ? 0 : index >= i64(extent) ? extent - 1 : u32(index);
}

} // namespace lmc
