// Hero row_reduction where a row stays in registers: every input is read once.
// RUN: lmc-translate --kern-to-cuda %s | FileCheck %s --strict-whitespace --match-full-lines

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
#map2 = affine_map<(d0) -> (d0)>
#map3 = affine_map<(d0, d1) -> (d1)>

// A block takes several rows, so that the weight is loaded once for all of them.
//CHECK:// add_rms_norm: row_reduction of lm.add, lm.rms_norm
//CHECK-NEXT://
//CHECK-NEXT://   t0 = bf16(x0 + x1)
//CHECK-NEXT://   y0 = t0
//CHECK-NEXT://   s0 = sum(y0^2)
//CHECK-NEXT://   y1 = bf16(y0 * (1 / sqrt(s0 * 0.00048828125 + 1e-05)) * x2)
//CHECK-NEXT://
//CHECK-NEXT:// x0: bf16 [131072, 2048]
//CHECK-NEXT:// x1: bf16 [131072, 2048]
//CHECK-NEXT:// x2: float [2048]
//CHECK-NEXT:// y0: bf16 [131072, 2048]
//CHECK-NEXT:// y1: bf16 [131072, 2048]
//CHECK-NEXT://
//CHECK-NEXT:// A block takes 8 rows one after the other; a thread keeps 2 x 8 columns in registers.
//CHECK-NEXT:// Reads 1073750016 bytes and writes 1073741824. Launch: 16384 blocks of 128 threads, 32 bytes of shared memory.
//CHECK-NEXT:#include "lmc/reduce.cuh"
//CHECK-NEXT:#include "lmc/vector_io.cuh"
//CHECK-EMPTY:
//CHECK-NEXT:using namespace lmc;
//CHECK-EMPTY:
//CHECK-NEXT:extern "C" __global__ void __launch_bounds__(128)
//CHECK-NEXT:lmc_add_rms_norm(const bf16 *x0, const bf16 *x1, const float *x2, bf16 *y0, bf16 *y1) {
//CHECK-NEXT:  float *const totals0 = reinterpret_cast<float *>(sharedMemory());
//CHECK-NEXT:  Vec<float, 8> x2v0[2];
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:  for (u32 k = 0; k < 2; ++k) {
//CHECK-NEXT:    const u32 c = (k * 128 + threadIdx.x) * 8;
//CHECK-NEXT:    x2v0[k] = load<8>(x2 + c);
//CHECK-NEXT:  }
//CHECK-NEXT:  const u32 first = blockIdx.x * 8;
//CHECK-NEXT:  const u32 last = first + 8;
//CHECK-NEXT:  for (u32 row = first; row < last; ++row) {
//CHECK-NEXT:    Vec<bf16, 8> x0v0[2];
//CHECK-NEXT:    Vec<bf16, 8> x1v0[2];
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 k = 0; k < 2; ++k) {
//CHECK-NEXT:      const u32 c = (k * 128 + threadIdx.x) * 8;
//CHECK-NEXT:      x0v0[k] = load<8>(x0 + row * 2048 + c);
//CHECK-NEXT:      x1v0[k] = load<8>(x1 + row * 2048 + c);
//CHECK-NEXT:    }
//CHECK-NEXT:    float sum0 = 0.0f;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 k = 0; k < 2; ++k) {
//CHECK-NEXT:      const u32 c = (k * 128 + threadIdx.x) * 8;
//CHECK-NEXT:      Vec<bf16, 8> y0v;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:      for (u32 e = 0; e < 8; ++e) {
//CHECK-NEXT:        const bf16 t0 = toBf16(toFloat(x0v0[k].at[e]) + toFloat(x1v0[k].at[e]));
//CHECK-NEXT:        const float t1 = toFloat(t0);
//CHECK-NEXT:        sum0 = fmaf(t1, t1, sum0);
//CHECK-NEXT:        y0v.at[e] = t0;
//CHECK-NEXT:      }
//CHECK-NEXT:      store<8>(y0 + row * 2048 + c, y0v);
//CHECK-NEXT:    }
//CHECK-NEXT:    putWarpTotal<Add>(totals0 + row % 2 * 4, sum0);
//CHECK-NEXT:    __syncthreads();
//CHECK-NEXT:    sum0 = blockTotal<Add, 4>(totals0 + row % 2 * 4);
//CHECK-NEXT:    const float r0 = 1.0f / sqrtf(fmaf(sum0, 0.00048828125f, 1e-05f));
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 k = 0; k < 2; ++k) {
//CHECK-NEXT:      const u32 c = (k * 128 + threadIdx.x) * 8;
//CHECK-NEXT:      Vec<bf16, 8> y1v;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:      for (u32 e = 0; e < 8; ++e) {
//CHECK-NEXT:        const bf16 t0 = toBf16(toFloat(x0v0[k].at[e]) + toFloat(x1v0[k].at[e]));
//CHECK-NEXT:        y1v.at[e] = toBf16(toFloat(t0) * r0 * x2v0[k].at[e]);
//CHECK-NEXT:      }
//CHECK-NEXT:      store<8>(y1 + row * 2048 + c, y1v);
//CHECK-NEXT:    }
//CHECK-NEXT:  }
//CHECK-NEXT:}
kern.kernel @add_rms_norm row_reduction attributes {source_ops = ["lm.add", "lm.rms_norm"]} {
^bb0(%arg0: tensor<131072x2048xbf16>, %arg1: tensor<131072x2048xbf16>, %arg2: tensor<2048xf32>):
  %0 = tensor.empty() : tensor<131072x2048xbf16>
  %1 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0, %arg1 : tensor<131072x2048xbf16>, tensor<131072x2048xbf16>) outs(%0 : tensor<131072x2048xbf16>) {
  ^bb0(%in: bf16, %in_0: bf16, %out: bf16):
    %7 = arith.extf %in : bf16 to f32
    %8 = arith.extf %in_0 : bf16 to f32
    %9 = arith.addf %7, %8 : f32
    %10 = arith.truncf %9 : f32 to bf16
    linalg.yield %10 : bf16
  } -> tensor<131072x2048xbf16>
  %cst = arith.constant 0.000000e+00 : f32
  %2 = tensor.empty() : tensor<131072xf32>
  %3 = linalg.fill ins(%cst : f32) outs(%2 : tensor<131072xf32>) -> tensor<131072xf32>
  %4 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%1 : tensor<131072x2048xbf16>) outs(%3 : tensor<131072xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %7 = arith.extf %in : bf16 to f32
    %8 = arith.mulf %7, %7 : f32
    %9 = arith.addf %out, %8 : f32
    linalg.yield %9 : f32
  } -> tensor<131072xf32>
  %5 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel"]} ins(%4 : tensor<131072xf32>) outs(%2 : tensor<131072xf32>) {
  ^bb0(%in: f32, %out: f32):
    %cst_0 = arith.constant 4.8828125E-4 : f32
    %7 = arith.mulf %in, %cst_0 : f32
    %cst_1 = arith.constant 9.99999974E-6 : f32
    %8 = arith.addf %7, %cst_1 : f32
    %9 = math.sqrt %8 : f32
    %cst_2 = arith.constant 1.000000e+00 : f32
    %10 = arith.divf %cst_2, %9 : f32
    linalg.yield %10 : f32
  } -> tensor<131072xf32>
  %6 = linalg.generic {indexing_maps = [#map, #map1, #map3, #map], iterator_types = ["parallel", "parallel"]} ins(%1, %5, %arg2 : tensor<131072x2048xbf16>, tensor<131072xf32>, tensor<2048xf32>) outs(%0 : tensor<131072x2048xbf16>) {
  ^bb0(%in: bf16, %in_0: f32, %in_1: f32, %out: bf16):
    %7 = arith.extf %in : bf16 to f32
    %8 = arith.mulf %7, %in_0 : f32
    %9 = arith.mulf %8, %in_1 : f32
    %10 = arith.truncf %9 : f32 to bf16
    linalg.yield %10 : bf16
  } -> tensor<131072x2048xbf16>
  kern.yield %1, %6 : tensor<131072x2048xbf16>, tensor<131072x2048xbf16>
}

// A short row is a warp's. The last vectors of a row are guarded, and the rows of the last block.
//CHECK:// centred: row_reduction
//CHECK-NEXT://
//CHECK-NEXT://   s0 = sum(x0)
//CHECK-NEXT://   y0 = x0 - s0 / 150
//CHECK-NEXT://   y1 = s0
//CHECK-NEXT://
//CHECK-NEXT:// x0: float [1001, 150]
//CHECK-NEXT:// y0: float [1001, 150]
//CHECK-NEXT:// y1: float [1001]
//CHECK-NEXT://
//CHECK-NEXT:// A warp takes a row; a thread keeps 3 x 2 columns in registers.
//CHECK-NEXT:// Reads 600600 bytes and writes 604604. Launch: 251 blocks of 128 threads, 0 bytes of shared memory.
//CHECK-NEXT:#include "lmc/reduce.cuh"
//CHECK-NEXT:#include "lmc/vector_io.cuh"
//CHECK-EMPTY:
//CHECK-NEXT:using namespace lmc;
//CHECK-EMPTY:
//CHECK-NEXT:extern "C" __global__ void __launch_bounds__(128)
//CHECK-NEXT:lmc_centred(const float *x0, float *y0, float *y1) {
//CHECK-NEXT:  const u32 row = blockIdx.x * 4 + threadIdx.x / 32;
//CHECK-NEXT:  if (row >= 1001)
//CHECK-NEXT:    return;
//CHECK-NEXT:  Vec<float, 2> x0v0[3];
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:  for (u32 k = 0; k < 3; ++k) {
//CHECK-NEXT:    const u32 c = (k * 32 + threadIdx.x % 32) * 2;
//CHECK-NEXT:    if (c < 150) {
//CHECK-NEXT:      x0v0[k] = load<2>(x0 + row * 150 + c);
//CHECK-NEXT:    }
//CHECK-NEXT:  }
//CHECK-NEXT:  float sum0 = 0.0f;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:  for (u32 k = 0; k < 3; ++k) {
//CHECK-NEXT:    const u32 c = (k * 32 + threadIdx.x % 32) * 2;
//CHECK-NEXT:    if (c < 150) {
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:      for (u32 e = 0; e < 2; ++e) {
//CHECK-NEXT:        sum0 = sum0 + x0v0[k].at[e];
//CHECK-NEXT:      }
//CHECK-NEXT:    }
//CHECK-NEXT:  }
//CHECK-NEXT:  sum0 = reduceWarp<Add>(sum0);
//CHECK-NEXT:  const float r0 = sum0 / 150.0f;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:  for (u32 k = 0; k < 3; ++k) {
//CHECK-NEXT:    const u32 c = (k * 32 + threadIdx.x % 32) * 2;
//CHECK-NEXT:    if (c < 150) {
//CHECK-NEXT:      Vec<float, 2> y0v;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:      for (u32 e = 0; e < 2; ++e) {
//CHECK-NEXT:        y0v.at[e] = x0v0[k].at[e] - r0;
//CHECK-NEXT:      }
//CHECK-NEXT:      store<2>(y0 + row * 150 + c, y0v);
//CHECK-NEXT:    }
//CHECK-NEXT:  }
//CHECK-NEXT:  if (threadIdx.x % 32 == 0)
//CHECK-NEXT:    storeOne(y1 + row, sum0);
//CHECK-NEXT:}
#rc = affine_map<(r, c) -> (r, c)>
#r = affine_map<(r, c) -> (r)>
kern.kernel @centred row_reduction {
^bb0(%x: tensor<1001x150xf32>):
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1001x150xf32>
  %er = tensor.empty() : tensor<1001xf32>
  %f = linalg.fill ins(%zero : f32) outs(%er : tensor<1001xf32>) -> tensor<1001xf32>
  %s = linalg.generic {indexing_maps = [#rc, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<1001x150xf32>) outs(%f : tensor<1001xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %t = arith.addf %acc, %a : f32
    linalg.yield %t : f32
  } -> tensor<1001xf32>
  %y = linalg.generic {indexing_maps = [#rc, #r, #rc], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<1001x150xf32>, tensor<1001xf32>) outs(%e : tensor<1001x150xf32>) {
  ^bb0(%a: f32, %m: f32, %o: f32):
    %n = arith.constant 150.0 : f32
    %k = arith.divf %m, %n : f32
    %t = arith.subf %a, %k : f32
    linalg.yield %t : f32
  } -> tensor<1001x150xf32>
  kern.yield %y, %s : tensor<1001x150xf32>, tensor<1001xf32>
}
