// Sums of blocks of rows: a block takes the rows one after the other, and its threads keep the sums
// of their columns.
// RUN: lmc-translate --kern-to-cuda %s | FileCheck %s --strict-whitespace --match-full-lines

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
#map2 = affine_map<(d0) -> (d0)>
#map3 = affine_map<(d0, d1) -> (d1)>
#map4 = affine_map<(d0, d1, d2) -> (d0 * 64 + d1, d2)>
#map5 = affine_map<(d0, d1, d2) -> (d0 * 64 + d1)>
#map6 = affine_map<(d0, d1, d2) -> (d1)>
#map7 = affine_map<(d0, d1, d2) -> (d0, d2)>

//CHECK:// rms_norm_grad_add: row_reduction of lm.rms_norm_grad, lm.add
//CHECK-NEXT://
//CHECK-NEXT://   s0 = sum(x1^2)
//CHECK-NEXT://   t0 = 1 / sqrt(s0 * 0.00048828125 + 1e-05)
//CHECK-NEXT://   s1 = sum of every 64 rows of (x0[d0 * 64 + d1, d2] * (x1[d0 * 64 + d1, d2] * t0[d0 * 64 + d1]))
//CHECK-NEXT://   y0 = s1
//CHECK-NEXT://   s2 = sum(x0 * x2 * x1)
//CHECK-NEXT://   y1 = bf16(x3 + bf16(t0 * (x0 * x2) - t0 * t0^2 * (s2 * 0.00048828125) * x1))
//CHECK-NEXT://
//CHECK-NEXT:// x0: bf16 [131072, 2048]
//CHECK-NEXT:// x1: bf16 [131072, 2048]
//CHECK-NEXT:// x2: float [2048]
//CHECK-NEXT:// x3: bf16 [131072, 2048]
//CHECK-NEXT:// y0: float [2048, 2048]
//CHECK-NEXT:// y1: bf16 [131072, 2048]
//CHECK-NEXT://
//CHECK-NEXT:// A block takes 64 rows one after the other; a thread keeps 2 x 8 columns in registers.
//CHECK-NEXT:// Reads 1610620928 bytes and writes 553648128. Launch: 2048 blocks of 128 threads, 64 bytes of shared memory.
//CHECK-NEXT:#include "lmc/reduce.cuh"
//CHECK-NEXT:#include "lmc/vector_io.cuh"
//CHECK-EMPTY:
//CHECK-NEXT:using namespace lmc;
//CHECK-EMPTY:
//CHECK-NEXT:extern "C" __global__ void __launch_bounds__(128)
//CHECK-NEXT:lmc_rms_norm_grad_add(const bf16 *x0, const bf16 *x1, const float *x2, const bf16 *x3, float *y0, bf16 *y1) {
//CHECK-NEXT:  float *const totals0 = reinterpret_cast<float *>(sharedMemory());
//CHECK-NEXT:  float *const totals1 = reinterpret_cast<float *>(sharedMemory() + 32);
//CHECK-NEXT:  Vec<float, 8> x2v0[2];
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:  for (u32 k = 0; k < 2; ++k) {
//CHECK-NEXT:    const u32 c = (k * 128 + threadIdx.x) * 8;
//CHECK-NEXT:    x2v0[k] = load<8>(x2 + c);
//CHECK-NEXT:  }
//CHECK-NEXT:  Vec<float, 8> rows0[2];
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:  for (u32 k = 0; k < 2; ++k) {
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 e = 0; e < 8; ++e) {
//CHECK-NEXT:      rows0[k].at[e] = 0.0f;
//CHECK-NEXT:    }
//CHECK-NEXT:  }
//CHECK-NEXT:  const u32 item = blockIdx.x;
//CHECK-NEXT:  const u32 first = item * 64;
//CHECK-NEXT:  for (u32 row = first; row < first + 64; ++row) {
//CHECK-NEXT:    Vec<bf16, 8> x1v0[2];
//CHECK-NEXT:    Vec<bf16, 8> x0v0[2];
//CHECK-NEXT:    Vec<bf16, 8> x3v0[2];
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 k = 0; k < 2; ++k) {
//CHECK-NEXT:      const u32 c = (k * 128 + threadIdx.x) * 8;
//CHECK-NEXT:      x1v0[k] = load<8>(x1 + row * 2048 + c);
//CHECK-NEXT:      x0v0[k] = load<8>(x0 + row * 2048 + c);
//CHECK-NEXT:      x3v0[k] = load<8>(x3 + row * 2048 + c);
//CHECK-NEXT:    }
//CHECK-NEXT:    float sum0 = 0.0f;
//CHECK-NEXT:    float sum1 = 0.0f;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 k = 0; k < 2; ++k) {
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:      for (u32 e = 0; e < 8; ++e) {
//CHECK-NEXT:        const float t0 = toFloat(x1v0[k].at[e]);
//CHECK-NEXT:        sum0 = fmaf(t0, t0, sum0);
//CHECK-NEXT:        sum1 = fmaf(toFloat(x0v0[k].at[e]) * x2v0[k].at[e], t0, sum1);
//CHECK-NEXT:      }
//CHECK-NEXT:    }
//CHECK-NEXT:    putWarpTotal<Add>(totals0 + row % 2 * 4, sum0);
//CHECK-NEXT:    putWarpTotal<Add>(totals1 + row % 2 * 4, sum1);
//CHECK-NEXT:    __syncthreads();
//CHECK-NEXT:    sum0 = blockTotal<Add, 4>(totals0 + row % 2 * 4);
//CHECK-NEXT:    sum1 = blockTotal<Add, 4>(totals1 + row % 2 * 4);
//CHECK-NEXT:    const float r0 = 1.0f / sqrtf(fmaf(sum0, 0.00048828125f, 1e-05f));
//CHECK-NEXT:    const float r1 = r0 * (r0 * r0) * (sum1 * 0.00048828125f);
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 k = 0; k < 2; ++k) {
//CHECK-NEXT:      const u32 c = (k * 128 + threadIdx.x) * 8;
//CHECK-NEXT:      Vec<bf16, 8> y1v;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:      for (u32 e = 0; e < 8; ++e) {
//CHECK-NEXT:        rows0[k].at[e] = fmaf(toFloat(x0v0[k].at[e]), toFloat(x1v0[k].at[e]) * r0, rows0[k].at[e]);
//CHECK-NEXT:        const float t0 = fmaf(r0, toFloat(x0v0[k].at[e]) * x2v0[k].at[e], -(r1 * toFloat(x1v0[k].at[e])));
//CHECK-NEXT:        y1v.at[e] = toBf16(toFloat(x3v0[k].at[e]) + toFloat(toBf16(t0)));
//CHECK-NEXT:      }
//CHECK-NEXT:      store<8>(y1 + row * 2048 + c, y1v);
//CHECK-NEXT:    }
//CHECK-NEXT:  }
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:  for (u32 k = 0; k < 2; ++k) {
//CHECK-NEXT:    const u32 c = (k * 128 + threadIdx.x) * 8;
//CHECK-NEXT:    store<8>(y0 + item * 2048 + c, rows0[k]);
//CHECK-NEXT:  }
//CHECK-NEXT:}
kern.kernel @rms_norm_grad_add row_reduction attributes {source_ops = ["lm.rms_norm_grad", "lm.add"]} {
^bb0(%arg0: tensor<131072x2048xbf16>, %arg1: tensor<131072x2048xbf16>, %arg2: tensor<2048xf32>, %arg3: tensor<131072x2048xbf16>):
  %cst = arith.constant 0.000000e+00 : f32
  %0 = tensor.empty() : tensor<131072xf32>
  %1 = linalg.fill ins(%cst : f32) outs(%0 : tensor<131072xf32>) -> tensor<131072xf32>
  %2 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%arg1 : tensor<131072x2048xbf16>) outs(%1 : tensor<131072xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %13 = arith.extf %in : bf16 to f32
    %14 = arith.mulf %13, %13 : f32
    %15 = arith.addf %out, %14 : f32
    linalg.yield %15 : f32
  } -> tensor<131072xf32>
  %3 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel"]} ins(%2 : tensor<131072xf32>) outs(%0 : tensor<131072xf32>) {
  ^bb0(%in: f32, %out: f32):
    %cst_0 = arith.constant 4.8828125E-4 : f32
    %13 = arith.mulf %in, %cst_0 : f32
    %cst_1 = arith.constant 9.99999974E-6 : f32
    %14 = arith.addf %13, %cst_1 : f32
    %15 = math.sqrt %14 : f32
    %cst_2 = arith.constant 1.000000e+00 : f32
    %16 = arith.divf %cst_2, %15 : f32
    linalg.yield %16 : f32
  } -> tensor<131072xf32>
  %4 = linalg.generic {indexing_maps = [#map, #map, #map3, #map1], iterator_types = ["parallel", "reduction"]} ins(%arg0, %arg1, %arg2 : tensor<131072x2048xbf16>, tensor<131072x2048xbf16>, tensor<2048xf32>) outs(%1 : tensor<131072xf32>) {
  ^bb0(%in: bf16, %in_0: bf16, %in_1: f32, %out: f32):
    %13 = arith.extf %in : bf16 to f32
    %14 = arith.extf %in_0 : bf16 to f32
    %15 = arith.mulf %13, %in_1 : f32
    %16 = arith.mulf %15, %14 : f32
    %17 = arith.addf %out, %16 : f32
    linalg.yield %17 : f32
  } -> tensor<131072xf32>
  %5 = linalg.generic {indexing_maps = [#map2, #map2, #map2], iterator_types = ["parallel"]} ins(%3, %4 : tensor<131072xf32>, tensor<131072xf32>) outs(%0 : tensor<131072xf32>) {
  ^bb0(%in: f32, %in_0: f32, %out: f32):
    %13 = arith.mulf %in, %in : f32
    %14 = arith.mulf %in, %13 : f32
    %cst_1 = arith.constant 4.8828125E-4 : f32
    %15 = arith.mulf %in_0, %cst_1 : f32
    %16 = arith.mulf %14, %15 : f32
    linalg.yield %16 : f32
  } -> tensor<131072xf32>
  %6 = tensor.empty() : tensor<131072x2048xbf16>
  %7 = linalg.generic {indexing_maps = [#map, #map, #map3, #map1, #map1, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0, %arg1, %arg2, %3, %5 : tensor<131072x2048xbf16>, tensor<131072x2048xbf16>, tensor<2048xf32>, tensor<131072xf32>, tensor<131072xf32>) outs(%6 : tensor<131072x2048xbf16>) {
  ^bb0(%in: bf16, %in_0: bf16, %in_1: f32, %in_2: f32, %in_3: f32, %out: bf16):
    %13 = arith.extf %in : bf16 to f32
    %14 = arith.extf %in_0 : bf16 to f32
    %15 = arith.mulf %13, %in_1 : f32
    %16 = arith.mulf %in_3, %14 : f32
    %17 = arith.mulf %in_2, %15 : f32
    %18 = arith.subf %17, %16 : f32
    %19 = arith.truncf %18 : f32 to bf16
    linalg.yield %19 : bf16
  } -> tensor<131072x2048xbf16>
  %8 = tensor.empty() : tensor<64xf32>
  %9 = tensor.empty() : tensor<2048x2048xf32>
  %10 = linalg.fill ins(%cst : f32) outs(%9 : tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
  %11 = linalg.generic {indexing_maps = [#map4, #map4, #map5, #map6, #map7], iterator_types = ["parallel", "reduction", "parallel"]} ins(%arg0, %arg1, %3, %8 : tensor<131072x2048xbf16>, tensor<131072x2048xbf16>, tensor<131072xf32>, tensor<64xf32>) outs(%10 : tensor<2048x2048xf32>) {
  ^bb0(%in: bf16, %in_0: bf16, %in_1: f32, %in_2: f32, %out: f32):
    %13 = arith.extf %in : bf16 to f32
    %14 = arith.extf %in_0 : bf16 to f32
    %15 = arith.mulf %14, %in_1 : f32
    %16 = arith.mulf %13, %15 : f32
    %17 = arith.addf %out, %16 : f32
    linalg.yield %17 : f32
  } -> tensor<2048x2048xf32>
  %12 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%arg3, %7 : tensor<131072x2048xbf16>, tensor<131072x2048xbf16>) outs(%6 : tensor<131072x2048xbf16>) {
  ^bb0(%in: bf16, %in_0: bf16, %out: bf16):
    %13 = arith.extf %in : bf16 to f32
    %14 = arith.extf %in_0 : bf16 to f32
    %15 = arith.addf %13, %14 : f32
    %16 = arith.truncf %15 : f32 to bf16
    linalg.yield %16 : bf16
  } -> tensor<131072x2048xbf16>
  kern.yield %11, %12 : tensor<2048x2048xf32>, tensor<131072x2048xbf16>
}
