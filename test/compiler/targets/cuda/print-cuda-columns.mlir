// Hero column_reduction: groups of threads take rows in turn, their sums meet in shared memory.
// RUN: lmc-translate --kern-to-cuda %s | FileCheck %s --strict-whitespace --match-full-lines

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0) -> (d0)>
#map2 = affine_map<(d0, d1) -> (d1)>

//CHECK:// rms_norm_grad_weight_add: column_reduction of lm.rms_norm_grad_weight, lm.add
//CHECK-NEXT://
//CHECK-NEXT://   s0 = sum(x0)
//CHECK-NEXT://   y0 = x1 + s0
//CHECK-NEXT://
//CHECK-NEXT:// x0: float [2048, 2048]
//CHECK-NEXT:// x1: float [2048]
//CHECK-NEXT:// y0: float [2048]
//CHECK-NEXT://
//CHECK-NEXT:// A block takes 16 columns, a thread 4 of them in every 128-th row, 8 rows under way.
//CHECK-NEXT:// Reads 16785408 bytes and writes 8192. Launch: 128 blocks of 512 threads, 8192 bytes of shared memory.
//CHECK-NEXT:#include "lmc/reduce.cuh"
//CHECK-NEXT:#include "lmc/vector_io.cuh"
//CHECK-EMPTY:
//CHECK-NEXT:using namespace lmc;
//CHECK-EMPTY:
//CHECK-NEXT:extern "C" __global__ void __launch_bounds__(512)
//CHECK-NEXT:lmc_rms_norm_grad_weight_add(const float *x0, const float *x1, float *y0) {
//CHECK-NEXT:  const u32 group = threadIdx.x / 4;
//CHECK-NEXT:  const u32 c = (blockIdx.x * 4 + threadIdx.x % 4) * 4;
//CHECK-NEXT:  Vec<float, 4> sum0;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:  for (u32 e = 0; e < 4; ++e) {
//CHECK-NEXT:    sum0.at[e] = 0.0f;
//CHECK-NEXT:  }
//CHECK-NEXT:  for (u32 first = group; first < 2048; first += 1024) {
//CHECK-NEXT:    Vec<float, 4> x0v0[8];
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 k = 0; k < 8; ++k) {
//CHECK-NEXT:      const u32 row = first + k * 128;
//CHECK-NEXT:      x0v0[k] = load<4>(x0 + row * 2048 + c);
//CHECK-NEXT:    }
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 k = 0; k < 8; ++k) {
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:      for (u32 e = 0; e < 4; ++e) {
//CHECK-NEXT:        sum0.at[e] = sum0.at[e] + x0v0[k].at[e];
//CHECK-NEXT:      }
//CHECK-NEXT:    }
//CHECK-NEXT:  }
//CHECK-NEXT:  sum0 = reduceGroups<Add, 128, 4>(sum0, reinterpret_cast<float *>(sharedMemory()));
//CHECK-NEXT:  if (group == 0) {
//CHECK-NEXT:    const Vec<float, 4> x1v0 = load<4>(x1 + c);
//CHECK-NEXT:    Vec<float, 4> y0v;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 e = 0; e < 4; ++e) {
//CHECK-NEXT:      y0v.at[e] = x1v0.at[e] + sum0.at[e];
//CHECK-NEXT:    }
//CHECK-NEXT:    store<4>(y0 + c, y0v);
//CHECK-NEXT:  }
//CHECK-NEXT:}
kern.kernel @rms_norm_grad_weight_add column_reduction attributes {source_ops = ["lm.rms_norm_grad_weight", "lm.add"]} {
^bb0(%arg0: tensor<2048x2048xf32>, %arg1: tensor<2048xf32>):
  %cst = arith.constant 0.000000e+00 : f32
  %0 = tensor.empty() : tensor<2048xf32>
  %1 = linalg.fill ins(%cst : f32) outs(%0 : tensor<2048xf32>) -> tensor<2048xf32>
  %2 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["reduction", "parallel"]} ins(%arg0 : tensor<2048x2048xf32>) outs(%1 : tensor<2048xf32>) {
  ^bb0(%in: f32, %out: f32):
    %4 = arith.addf %out, %in : f32
    linalg.yield %4 : f32
  } -> tensor<2048xf32>
  %3 = linalg.generic {indexing_maps = [#map1, #map1, #map1], iterator_types = ["parallel"]} ins(%arg1, %2 : tensor<2048xf32>, tensor<2048xf32>) outs(%0 : tensor<2048xf32>) {
  ^bb0(%in: f32, %in_0: f32, %out: f32):
    %4 = arith.addf %in, %in_0 : f32
    linalg.yield %4 : f32
  } -> tensor<2048xf32>
  kern.yield %3 : tensor<2048xf32>
}

// A tile that is not full, rows that no step divides, a factor for each row.
//CHECK:// weighted: column_reduction
//CHECK-NEXT://
//CHECK-NEXT://   s0 = sum(x0 * x1)
//CHECK-NEXT://   y0 = s0
//CHECK-NEXT://
//CHECK-NEXT:// x0: bf16 [1001, 70]
//CHECK-NEXT:// x1: float [1001]
//CHECK-NEXT:// y0: float [70]
//CHECK-NEXT://
//CHECK-NEXT:// A block takes 32 columns, a thread 2 of them in every 32-th row, 8 rows under way.
//CHECK-NEXT:// Reads 144144 bytes and writes 280. Launch: 3 blocks of 512 threads, 4096 bytes of shared memory.
//CHECK-NEXT:#include "lmc/reduce.cuh"
//CHECK-NEXT:#include "lmc/vector_io.cuh"
//CHECK-EMPTY:
//CHECK-NEXT:using namespace lmc;
//CHECK-EMPTY:
//CHECK-NEXT:extern "C" __global__ void __launch_bounds__(512)
//CHECK-NEXT:lmc_weighted(const bf16 *x0, const float *x1, float *y0) {
//CHECK-NEXT:  const u32 group = threadIdx.x / 16;
//CHECK-NEXT:  const u32 c = (blockIdx.x * 16 + threadIdx.x % 16) * 2;
//CHECK-NEXT:  const bool inside = c < 70;
//CHECK-NEXT:  Vec<float, 2> sum0;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:  for (u32 e = 0; e < 2; ++e) {
//CHECK-NEXT:    sum0.at[e] = 0.0f;
//CHECK-NEXT:  }
//CHECK-NEXT:  for (u32 first = group; first < 1001 && inside; first += 256) {
//CHECK-NEXT:    Vec<bf16, 2> x0v0[8];
//CHECK-NEXT:    float x1v0[8];
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 k = 0; k < 8; ++k) {
//CHECK-NEXT:      const u32 row = first + k * 32;
//CHECK-NEXT:      if (row < 1001) {
//CHECK-NEXT:        x0v0[k] = load<2>(x0 + row * 70 + c);
//CHECK-NEXT:        x1v0[k] = loadOne(x1 + row);
//CHECK-NEXT:      }
//CHECK-NEXT:    }
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 k = 0; k < 8; ++k) {
//CHECK-NEXT:      const u32 row = first + k * 32;
//CHECK-NEXT:      if (row < 1001) {
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:        for (u32 e = 0; e < 2; ++e) {
//CHECK-NEXT:          sum0.at[e] = fmaf(toFloat(x0v0[k].at[e]), x1v0[k], sum0.at[e]);
//CHECK-NEXT:        }
//CHECK-NEXT:      }
//CHECK-NEXT:    }
//CHECK-NEXT:  }
//CHECK-NEXT:  sum0 = reduceGroups<Add, 32, 16>(sum0, reinterpret_cast<float *>(sharedMemory()));
//CHECK-NEXT:  if (group == 0 && inside) {
//CHECK-NEXT:    Vec<float, 2> y0v;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 e = 0; e < 2; ++e) {
//CHECK-NEXT:      y0v.at[e] = sum0.at[e];
//CHECK-NEXT:    }
//CHECK-NEXT:    store<2>(y0 + c, y0v);
//CHECK-NEXT:  }
//CHECK-NEXT:}
#rc = affine_map<(r, c) -> (r, c)>
#c = affine_map<(r, c) -> (c)>
#r = affine_map<(r, c) -> (r)>
kern.kernel @weighted column_reduction {
^bb0(%x: tensor<1001x70xbf16>, %w: tensor<1001xf32>):
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<70xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<70xf32>) -> tensor<70xf32>
  %s = linalg.generic {indexing_maps = [#rc, #r, #c], iterator_types = ["reduction", "parallel"]}
      ins(%x, %w : tensor<1001x70xbf16>, tensor<1001xf32>) outs(%f : tensor<70xf32>) {
  ^bb0(%a: bf16, %b: f32, %acc: f32):
    %g = arith.extf %a : bf16 to f32
    %p = arith.mulf %g, %b : f32
    %t = arith.addf %acc, %p : f32
    linalg.yield %t : f32
  } -> tensor<70xf32>
  kern.yield %s : tensor<70xf32>
}
