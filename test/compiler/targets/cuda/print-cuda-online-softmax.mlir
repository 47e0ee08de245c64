// Rows that are too long for registers: the maximum and the sum of exponentials are found in one
// pass, which puts most of the logits into shared memory. The second pass takes them from there, and
// reads the rest again, from the end. The gradient may lie over the logits: the target's logit is
// read by all before any is overwritten.
// RUN: lmc-translate --kern-to-cuda %s | FileCheck %s --strict-whitespace --match-full-lines

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
#map2 = affine_map<(d0) -> (d0)>
#map3 = affine_map<(d0, d1) -> ()>

//CHECK:// linear_cross_entropy_grad: row_reduction of lm.linear_cross_entropy_grad
//CHECK-NEXT://
//CHECK-NEXT://   s0 = max(x0)
//CHECK-NEXT://   s1 = sum(exp(x0 - s0))
//CHECK-NEXT://   t0 = s0 + log(s1)
//CHECK-NEXT://   y0 = x1 >= 0 ? t0 - x0[i0, max(x1, 0)] : 0
//CHECK-NEXT://   y1 = bf16(x1 >= 0 ? (exp(x0 - t0) - (i1 == x1 ? 1 : 0)) * x2 : 0)
//CHECK-NEXT://
//CHECK-NEXT:// x0: bf16 [1024, 131072]
//CHECK-NEXT:// x1: i32 [1024]
//CHECK-NEXT:// x2: float []
//CHECK-NEXT:// y0: float [1024]
//CHECK-NEXT:// y1: bf16 [1024, 131072]
//CHECK-NEXT://
//CHECK-NEXT:// A block takes a row; in every pass a thread reads 4 x 8 columns at a time. Shared memory keeps 14 of 16 vectors of a thread.
//CHECK-NEXT:// Reads 268439556 bytes (and 33554432 again) and writes 268439552. Launch: 1024 blocks of 1024 threads, 229632 bytes of shared memory.
//CHECK-NEXT:#include "lmc/reduce.cuh"
//CHECK-NEXT:#include "lmc/vector_io.cuh"
//CHECK-EMPTY:
//CHECK-NEXT:using namespace lmc;
//CHECK-EMPTY:
//CHECK-NEXT:extern "C" __global__ void __launch_bounds__(1024)
//CHECK-NEXT:lmc_linear_cross_entropy_grad(const bf16 *x0, const i32 *x1, const float *x2, float *y0, bf16 *y1) {
//CHECK-NEXT:  const float x2v0 = loadOne(x2);
//CHECK-NEXT:  float *const totals0 = reinterpret_cast<float *>(sharedMemory());
//CHECK-NEXT:  float *const totals1 = reinterpret_cast<float *>(sharedMemory() + 128);
//CHECK-NEXT:  bf16 *const held0 = reinterpret_cast<bf16 *>(sharedMemory() + 256);
//CHECK-NEXT:  const u32 row = blockIdx.x;
//CHECK-NEXT:  const i32 x1v0 = loadOne(x1 + row);
//CHECK-NEXT:  const u32 row0 = clampIndex(i64(max(x1v0, 0)), 131072);
//CHECK-NEXT:  const bf16 x0v1 = loadOne(x0 + row * 131072 + row0);
//CHECK-NEXT:  const float r1 = toFloat(x0v1);
//CHECK-NEXT:  const bool r2 = x1v0 >= 0;
//CHECK-NEXT:  float max0 = __uint_as_float(0xFF800000u);
//CHECK-NEXT:  float sum1 = 0.0f;
//CHECK-NEXT:  for (u32 start = 0; start < 16384; start += 4096) {
//CHECK-NEXT:    Vec<bf16, 8> x0v0[4];
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 k = 0; k < 4; ++k) {
//CHECK-NEXT:      const u32 c = (start + k * 1024 + threadIdx.x) * 8;
//CHECK-NEXT:      x0v0[k] = load<8>(x0 + row * 131072 + c);
//CHECK-NEXT:    }
//CHECK-NEXT:    const float before = max0;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 k = 0; k < 4; ++k) {
//CHECK-NEXT:      const u32 c = (start + k * 1024 + threadIdx.x) * 8;
//CHECK-NEXT:      if (c < 114688)
//CHECK-NEXT:        keep(held0 + c, x0v0[k]);
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:      for (u32 e = 0; e < 8; ++e) {
//CHECK-NEXT:        max0 = maximum(max0, toFloat(x0v0[k].at[e]));
//CHECK-NEXT:      }
//CHECK-NEXT:    }
//CHECK-NEXT:    if (max0 != __uint_as_float(0xFF800000u)) {
//CHECK-NEXT:      sum1 = rescaleSum(sum1, before, max0);
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:      for (u32 k = 0; k < 4; ++k) {
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:        for (u32 e = 0; e < 8; ++e) {
//CHECK-NEXT:          sum1 += expBelow(toFloat(x0v0[k].at[e]) - max0);
//CHECK-NEXT:        }
//CHECK-NEXT:      }
//CHECK-NEXT:    }
//CHECK-NEXT:  }
//CHECK-NEXT:  const float max0Own = max0;
//CHECK-NEXT:  putWarpTotal<Maximum>(totals0, max0);
//CHECK-NEXT:  __syncthreads();
//CHECK-NEXT:  max0 = blockTotal<Maximum, 32>(totals0);
//CHECK-NEXT:  sum1 = rescaleSum(sum1, max0Own, max0);
//CHECK-NEXT:  putWarpTotal<Add>(totals1, sum1);
//CHECK-NEXT:  __syncthreads();
//CHECK-NEXT:  sum1 = blockTotal<Add, 32>(totals1);
//CHECK-NEXT:  sum1 += max0 - max0; // NaN where the maximum is infinite
//CHECK-NEXT:  const float r0 = max0 + logf(sum1);
//CHECK-NEXT:  __syncthreads();
//CHECK-NEXT:  for (u32 end = 16384; end > 0; end -= 4096) {
//CHECK-NEXT:    Vec<bf16, 8> x0v2[4];
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 k = 0; k < 4; ++k) {
//CHECK-NEXT:      const u32 c = (end - 4096 + k * 1024 + threadIdx.x) * 8;
//CHECK-NEXT:      x0v2[k] = c < 114688 ? kept<8>(held0 + c) : load<8>(x0 + row * 131072 + c);
//CHECK-NEXT:    }
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 k = 0; k < 4; ++k) {
//CHECK-NEXT:      const u32 c = (end - 4096 + k * 1024 + threadIdx.x) * 8;
//CHECK-NEXT:      Vec<bf16, 8> y1v;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:      for (u32 e = 0; e < 8; ++e) {
//CHECK-NEXT:        const float t0 = expf(toFloat(x0v2[k].at[e]) - r0) - (i32(c + e) == x1v0 ? 1.0f : 0.0f);
//CHECK-NEXT:        y1v.at[e] = toBf16(r2 ? t0 * x2v0 : 0.0f);
//CHECK-NEXT:      }
//CHECK-NEXT:      store<8>(y1 + row * 131072 + c, y1v);
//CHECK-NEXT:    }
//CHECK-NEXT:  }
//CHECK-NEXT:  if (threadIdx.x == 0)
//CHECK-NEXT:    storeOne(y0 + row, r2 ? r0 - r1 : 0.0f);
//CHECK-NEXT:}
kern.kernel @linear_cross_entropy_grad row_reduction attributes {source_ops = ["lm.linear_cross_entropy_grad"]} {
^bb0(%arg0: tensor<1024x131072xbf16>, %arg1: tensor<1024xi32>, %arg2: tensor<f32>):
  %cst = arith.constant 0xFF800000 : f32
  %0 = tensor.empty() : tensor<1024xf32>
  %1 = linalg.fill ins(%cst : f32) outs(%0 : tensor<1024xf32>) -> tensor<1024xf32>
  %2 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%arg0 : tensor<1024x131072xbf16>) outs(%1 : tensor<1024xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %12 = arith.extf %in : bf16 to f32
    %13 = arith.maximumf %out, %12 : f32
    linalg.yield %13 : f32
  } -> tensor<1024xf32>
  %cst_0 = arith.constant 0.000000e+00 : f32
  %3 = tensor.empty() : tensor<1024xf32>
  %4 = linalg.fill ins(%cst_0 : f32) outs(%3 : tensor<1024xf32>) -> tensor<1024xf32>
  %5 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["parallel", "reduction"]} ins(%arg0, %2 : tensor<1024x131072xbf16>, tensor<1024xf32>) outs(%4 : tensor<1024xf32>) {
  ^bb0(%in: bf16, %in_1: f32, %out: f32):
    %12 = arith.extf %in : bf16 to f32
    %13 = arith.subf %12, %in_1 : f32
    %14 = math.exp %13 : f32
    %15 = arith.addf %out, %14 : f32
    linalg.yield %15 : f32
  } -> tensor<1024xf32>
  %6 = tensor.empty() : tensor<1024xf32>
  %7 = linalg.generic {indexing_maps = [#map2, #map2, #map2], iterator_types = ["parallel"]} ins(%2, %5 : tensor<1024xf32>, tensor<1024xf32>) outs(%6 : tensor<1024xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %12 = math.log %in_1 : f32
    %13 = arith.addf %in, %12 : f32
    linalg.yield %13 : f32
  } -> tensor<1024xf32>
  %8 = tensor.empty() : tensor<1024xf32>
  %9 = linalg.generic {indexing_maps = [#map2, #map2, #map2], iterator_types = ["parallel"]} ins(%arg1, %7 : tensor<1024xi32>, tensor<1024xf32>) outs(%8 : tensor<1024xf32>) {
  ^bb0(%in: i32, %in_1: f32, %out: f32):
    %c0_i32 = arith.constant 0 : i32
    %12 = arith.maxsi %in, %c0_i32 : i32
    %13 = arith.index_cast %12 : i32 to index
    %14 = linalg.index 0 : index
    %extracted = tensor.extract %arg0[%14, %13] : tensor<1024x131072xbf16>
    %15 = arith.extf %extracted : bf16 to f32
    %16 = arith.subf %in_1, %15 : f32
    %cst_2 = arith.constant 0.000000e+00 : f32
    %c0_i32_3 = arith.constant 0 : i32
    %17 = arith.cmpi sge, %in, %c0_i32_3 : i32
    %18 = arith.select %17, %16, %cst_2 : f32
    linalg.yield %18 : f32
  } -> tensor<1024xf32>
  %10 = tensor.empty() : tensor<1024x131072xbf16>
  %11 = linalg.generic {indexing_maps = [#map, #map1, #map1, #map3, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0, %7, %arg1, %arg2 : tensor<1024x131072xbf16>, tensor<1024xf32>, tensor<1024xi32>, tensor<f32>) outs(%10 : tensor<1024x131072xbf16>) {
  ^bb0(%in: bf16, %in_1: f32, %in_2: i32, %in_3: f32, %out: bf16):
    %12 = arith.extf %in : bf16 to f32
    %13 = arith.subf %12, %in_1 : f32
    %14 = math.exp %13 : f32
    %15 = linalg.index 1 : index
    %16 = arith.index_cast %15 : index to i32
    %17 = arith.cmpi eq, %16, %in_2 : i32
    %cst_4 = arith.constant 0.000000e+00 : f32
    %cst_5 = arith.constant 1.000000e+00 : f32
    %18 = arith.select %17, %cst_5, %cst_4 : f32
    %19 = arith.subf %14, %18 : f32
    %20 = arith.mulf %19, %in_3 : f32
    %c0_i32 = arith.constant 0 : i32
    %21 = arith.cmpi sge, %in_2, %c0_i32 : i32
    %22 = arith.select %21, %20, %cst_4 : f32
    %23 = arith.truncf %22 : f32 to bf16
    linalg.yield %23 : bf16
  } -> tensor<1024x131072xbf16>
  kern.yield %9, %11 : tensor<1024xf32>, tensor<1024x131072xbf16>
}
