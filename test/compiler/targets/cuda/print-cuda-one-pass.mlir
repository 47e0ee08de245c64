// A single pass over rows: scalars and what follows from them are computed once for several rows.
// RUN: lmc-translate --kern-to-cuda %s | FileCheck %s --strict-whitespace --match-full-lines

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>
#map2 = affine_map<(d0, d1) -> ()>

//CHECK:// adamw: row_reduction of lm.adamw
//CHECK-NEXT://
//CHECK-NEXT://   t0 = x4 < inf ? x2 + (1 - x6) * (x1 * (x11 > 0 ? minimum(1, x11 / (x4 + 1e-06)) : 1) - x2) : x2
//CHECK-NEXT://   t1 = x1 * (x11 > 0 ? minimum(1, x11 / (x4 + 1e-06)) : 1)
//CHECK-NEXT://   t2 = x4 < inf ? x7 * x3 + (1 - x7) * t1 * t1 : x3
//CHECK-NEXT://   t3 = x4 < inf ? x0 * (1 - x5 * x12) - x5 / x9 * (t0 / (sqrt(t2) / sqrt(x10) + x8)) : x0
//CHECK-NEXT://   y0 = t3
//CHECK-NEXT://   y1 = t0
//CHECK-NEXT://   y2 = t2
//CHECK-NEXT://   s0 = sum((y0 - x0)^2)
//CHECK-NEXT://   y3 = s0
//CHECK-NEXT://   s1 = sum(y0^2)
//CHECK-NEXT://   y4 = s1
//CHECK-NEXT://   y5 = bf16(y0)
//CHECK-NEXT://
//CHECK-NEXT:// x0: float [303104, 4096]
//CHECK-NEXT:// x1: float [303104, 4096]
//CHECK-NEXT:// x2: float [303104, 4096]
//CHECK-NEXT:// x3: float [303104, 4096]
//CHECK-NEXT:// x4: float []
//CHECK-NEXT:// x5: float []
//CHECK-NEXT:// x6: float []
//CHECK-NEXT:// x7: float []
//CHECK-NEXT:// x8: float []
//CHECK-NEXT:// x9: float []
//CHECK-NEXT:// x10: float []
//CHECK-NEXT:// x11: float []
//CHECK-NEXT:// x12: float []
//CHECK-NEXT:// y0: float [303104, 4096]
//CHECK-NEXT:// y1: float [303104, 4096]
//CHECK-NEXT:// y2: float [303104, 4096]
//CHECK-NEXT:// y3: float [303104]
//CHECK-NEXT:// y4: float [303104]
//CHECK-NEXT:// y5: bf16 [303104, 4096]
//CHECK-NEXT://
//CHECK-NEXT:// A block takes 8 rows one after the other; in every pass a thread reads 1 x 4 columns at a time.
//CHECK-NEXT:// Reads 19864223780 bytes and writes 17383620608. Launch: 37888 blocks of 256 threads, 128 bytes of shared memory.
//CHECK-NEXT:#include "lmc/reduce.cuh"
//CHECK-NEXT:#include "lmc/vector_io.cuh"
//CHECK-EMPTY:
//CHECK-NEXT:using namespace lmc;
//CHECK-EMPTY:
//CHECK-NEXT:extern "C" __global__ void __launch_bounds__(256)
//CHECK-NEXT:lmc_adamw(const float *x0, const float *x1, const float *x2, const float *x3, const float *x4, const float *x5, const float *x6, const float *x7, const float *x8, const float *x9, const float *x10, const float *x11, const float *x12, float *y0, float *y1, float *y2, float *y3, float *y4, bf16 *y5) {
//CHECK-NEXT:  const float x4v0 = loadOne(x4);
//CHECK-NEXT:  const float x5v0 = loadOne(x5);
//CHECK-NEXT:  const float x12v0 = loadOne(x12);
//CHECK-NEXT:  const float x9v0 = loadOne(x9);
//CHECK-NEXT:  const float x6v0 = loadOne(x6);
//CHECK-NEXT:  const float x11v0 = loadOne(x11);
//CHECK-NEXT:  const float s0 = x11v0 > 0.0f ? minimum(1.0f, x11v0 / (x4v0 + 1e-06f)) : 1.0f;
//CHECK-NEXT:  const float s1 = 1.0f - x6v0;
//CHECK-NEXT:  const bool s2 = x4v0 < __uint_as_float(0x7F800000u);
//CHECK-NEXT:  const float x7v0 = loadOne(x7);
//CHECK-NEXT:  const float s3 = 1.0f - x7v0;
//CHECK-NEXT:  const float x10v0 = loadOne(x10);
//CHECK-NEXT:  const float s4 = sqrtf(x10v0);
//CHECK-NEXT:  const float x8v0 = loadOne(x8);
//CHECK-NEXT:  const float s5 = fmaf(-x5v0, x12v0, 1.0f);
//CHECK-NEXT:  const float s6 = x5v0 / x9v0;
//CHECK-NEXT:  float *const totals0 = reinterpret_cast<float *>(sharedMemory());
//CHECK-NEXT:  float *const totals1 = reinterpret_cast<float *>(sharedMemory() + 64);
//CHECK-NEXT:  const u32 first = blockIdx.x * 8;
//CHECK-NEXT:  const u32 last = first + 8;
//CHECK-NEXT:  for (u32 row = first; row < last; ++row) {
//CHECK-NEXT:    float sum0 = 0.0f;
//CHECK-NEXT:    float sum1 = 0.0f;
//CHECK-NEXT:    for (u32 start = 0; start < 1024; start += 256) {
//CHECK-NEXT:      const u32 c = (start + threadIdx.x) * 4;
//CHECK-NEXT:      const Vec<float, 4> x0v0 = load<4>(x0 + row * 4096 + c);
//CHECK-NEXT:      const Vec<float, 4> x2v0 = load<4>(x2 + row * 4096 + c);
//CHECK-NEXT:      const Vec<float, 4> x1v0 = load<4>(x1 + row * 4096 + c);
//CHECK-NEXT:      const Vec<float, 4> x3v0 = load<4>(x3 + row * 4096 + c);
//CHECK-NEXT:      Vec<float, 4> y0v;
//CHECK-NEXT:      Vec<float, 4> y1v;
//CHECK-NEXT:      Vec<float, 4> y2v;
//CHECK-NEXT:      Vec<bf16, 4> y5v;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:      for (u32 e = 0; e < 4; ++e) {
//CHECK-NEXT:        const float t0 = s2 ? fmaf(s1, fmaf(x1v0.at[e], s0, -x2v0.at[e]), x2v0.at[e]) : x2v0.at[e];
//CHECK-NEXT:        const float t1 = x1v0.at[e] * s0;
//CHECK-NEXT:        const float t2 = s2 ? fmaf(x7v0, x3v0.at[e], s3 * t1 * t1) : x3v0.at[e];
//CHECK-NEXT:        const float t3 = s2 ? fmaf(x0v0.at[e], s5, -(s6 * (t0 / (sqrtf(t2) / s4 + x8v0)))) : x0v0.at[e];
//CHECK-NEXT:        const float t4 = t3 - x0v0.at[e];
//CHECK-NEXT:        sum0 = fmaf(t4, t4, sum0);
//CHECK-NEXT:        sum1 = fmaf(t3, t3, sum1);
//CHECK-NEXT:        y0v.at[e] = t3;
//CHECK-NEXT:        y1v.at[e] = t0;
//CHECK-NEXT:        y2v.at[e] = t2;
//CHECK-NEXT:        y5v.at[e] = toBf16(t3);
//CHECK-NEXT:      }
//CHECK-NEXT:      store<4>(y0 + row * 4096 + c, y0v);
//CHECK-NEXT:      store<4>(y1 + row * 4096 + c, y1v);
//CHECK-NEXT:      store<4>(y2 + row * 4096 + c, y2v);
//CHECK-NEXT:      store<4>(y5 + row * 4096 + c, y5v);
//CHECK-NEXT:    }
//CHECK-NEXT:    putWarpTotal<Add>(totals0 + row % 2 * 8, sum0);
//CHECK-NEXT:    putWarpTotal<Add>(totals1 + row % 2 * 8, sum1);
//CHECK-NEXT:    __syncthreads();
//CHECK-NEXT:    sum0 = blockTotal<Add, 8>(totals0 + row % 2 * 8);
//CHECK-NEXT:    sum1 = blockTotal<Add, 8>(totals1 + row % 2 * 8);
//CHECK-NEXT:    if (threadIdx.x == 0)
//CHECK-NEXT:      storeOne(y3 + row, sum0);
//CHECK-NEXT:    if (threadIdx.x == 0)
//CHECK-NEXT:      storeOne(y4 + row, sum1);
//CHECK-NEXT:  }
//CHECK-NEXT:}
kern.kernel @adamw row_reduction attributes {source_ops = ["lm.adamw"]} {
^bb0(%arg0: tensor<303104x4096xf32>, %arg1: tensor<303104x4096xf32>, %arg2: tensor<303104x4096xf32>, %arg3: tensor<303104x4096xf32>, %arg4: tensor<f32>, %arg5: tensor<f32>, %arg6: tensor<f32>, %arg7: tensor<f32>, %arg8: tensor<f32>, %arg9: tensor<f32>, %arg10: tensor<f32>, %arg11: tensor<f32>, %arg12: tensor<f32>):
  %0 = tensor.empty() : tensor<303104x4096xf32>
  %1 = linalg.generic {indexing_maps = [#map, #map, #map2, #map2, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%arg1, %arg2, %arg4, %arg6, %arg11 : tensor<303104x4096xf32>, tensor<303104x4096xf32>, tensor<f32>, tensor<f32>, tensor<f32>) outs(%0 : tensor<303104x4096xf32>) {
  ^bb0(%in: f32, %in_1: f32, %in_2: f32, %in_3: f32, %in_4: f32, %out: f32):
    %cst_5 = arith.constant 1.000000e+00 : f32
    %cst_6 = arith.constant 9.99999997E-7 : f32
    %14 = arith.addf %in_2, %cst_6 : f32
    %15 = arith.divf %in_4, %14 : f32
    %16 = arith.minimumf %cst_5, %15 : f32
    %cst_7 = arith.constant 0.000000e+00 : f32
    %17 = arith.cmpf ogt, %in_4, %cst_7 : f32
    %18 = arith.select %17, %16, %cst_5 : f32
    %19 = arith.mulf %in, %18 : f32
    %cst_8 = arith.constant 1.000000e+00 : f32
    %20 = arith.subf %cst_8, %in_3 : f32
    %21 = arith.subf %19, %in_1 : f32
    %22 = arith.mulf %20, %21 : f32
    %23 = arith.addf %in_1, %22 : f32
    %cst_9 = arith.constant 0x7F800000 : f32
    %24 = arith.cmpf olt, %in_2, %cst_9 : f32
    %25 = arith.select %24, %23, %in_1 : f32
    linalg.yield %25 : f32
  } -> tensor<303104x4096xf32>
  %2 = tensor.empty() : tensor<303104x4096xf32>
  %3 = linalg.generic {indexing_maps = [#map, #map, #map2, #map2, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%arg1, %arg3, %arg4, %arg7, %arg11 : tensor<303104x4096xf32>, tensor<303104x4096xf32>, tensor<f32>, tensor<f32>, tensor<f32>) outs(%2 : tensor<303104x4096xf32>) {
  ^bb0(%in: f32, %in_1: f32, %in_2: f32, %in_3: f32, %in_4: f32, %out: f32):
    %cst_5 = arith.constant 1.000000e+00 : f32
    %cst_6 = arith.constant 9.99999997E-7 : f32
    %14 = arith.addf %in_2, %cst_6 : f32
    %15 = arith.divf %in_4, %14 : f32
    %16 = arith.minimumf %cst_5, %15 : f32
    %cst_7 = arith.constant 0.000000e+00 : f32
    %17 = arith.cmpf ogt, %in_4, %cst_7 : f32
    %18 = arith.select %17, %16, %cst_5 : f32
    %19 = arith.mulf %in, %18 : f32
    %cst_8 = arith.constant 1.000000e+00 : f32
    %20 = arith.subf %cst_8, %in_3 : f32
    %21 = arith.mulf %20, %19 : f32
    %22 = arith.mulf %21, %19 : f32
    %23 = arith.mulf %in_3, %in_1 : f32
    %24 = arith.addf %23, %22 : f32
    %cst_9 = arith.constant 0x7F800000 : f32
    %25 = arith.cmpf olt, %in_2, %cst_9 : f32
    %26 = arith.select %25, %24, %in_1 : f32
    linalg.yield %26 : f32
  } -> tensor<303104x4096xf32>
  %4 = tensor.empty() : tensor<303104x4096xf32>
  %5 = linalg.generic {indexing_maps = [#map, #map, #map, #map2, #map2, #map2, #map2, #map2, #map2, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0, %1, %3, %arg4, %arg5, %arg8, %arg9, %arg10, %arg12 : tensor<303104x4096xf32>, tensor<303104x4096xf32>, tensor<303104x4096xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) outs(%4 : tensor<303104x4096xf32>) {
  ^bb0(%in: f32, %in_1: f32, %in_2: f32, %in_3: f32, %in_4: f32, %in_5: f32, %in_6: f32, %in_7: f32, %in_8: f32, %out: f32):
    %14 = arith.mulf %in_4, %in_8 : f32
    %cst_9 = arith.constant 1.000000e+00 : f32
    %15 = arith.subf %cst_9, %14 : f32
    %16 = arith.mulf %in, %15 : f32
    %17 = math.sqrt %in_7 : f32
    %18 = math.sqrt %in_2 : f32
    %19 = arith.divf %18, %17 : f32
    %20 = arith.addf %19, %in_5 : f32
    %21 = arith.divf %in_4, %in_6 : f32
    %22 = arith.divf %in_1, %20 : f32
    %23 = arith.mulf %21, %22 : f32
    %24 = arith.subf %16, %23 : f32
    %cst_10 = arith.constant 0x7F800000 : f32
    %25 = arith.cmpf olt, %in_3, %cst_10 : f32
    %26 = arith.select %25, %24, %in : f32
    linalg.yield %26 : f32
  } -> tensor<303104x4096xf32>
  %cst = arith.constant 0.000000e+00 : f32
  %6 = tensor.empty() : tensor<303104xf32>
  %7 = linalg.fill ins(%cst : f32) outs(%6 : tensor<303104xf32>) -> tensor<303104xf32>
  %8 = linalg.generic {indexing_maps = [#map, #map, #map1], iterator_types = ["parallel", "reduction"]} ins(%5, %arg0 : tensor<303104x4096xf32>, tensor<303104x4096xf32>) outs(%7 : tensor<303104xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %14 = arith.subf %in, %in_1 : f32
    %15 = arith.mulf %14, %14 : f32
    %16 = arith.addf %out, %15 : f32
    linalg.yield %16 : f32
  } -> tensor<303104xf32>
  %cst_0 = arith.constant 0.000000e+00 : f32
  %9 = tensor.empty() : tensor<303104xf32>
  %10 = linalg.fill ins(%cst_0 : f32) outs(%9 : tensor<303104xf32>) -> tensor<303104xf32>
  %11 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "reduction"]} ins(%5 : tensor<303104x4096xf32>) outs(%10 : tensor<303104xf32>) {
  ^bb0(%in: f32, %out: f32):
    %14 = arith.mulf %in, %in : f32
    %15 = arith.addf %out, %14 : f32
    linalg.yield %15 : f32
  } -> tensor<303104xf32>
  %12 = tensor.empty() : tensor<303104x4096xbf16>
  %13 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%5 : tensor<303104x4096xf32>) outs(%12 : tensor<303104x4096xbf16>) {
  ^bb0(%in: f32, %out: bf16):
    %14 = arith.truncf %in : f32 to bf16
    linalg.yield %14 : bf16
  } -> tensor<303104x4096xbf16>
  kern.yield %5, %1, %3, %8, %11, %13 : tensor<303104x4096xf32>, tensor<303104x4096xf32>, tensor<303104x4096xf32>, tensor<303104xf32>, tensor<303104xf32>, tensor<303104x4096xbf16>
}
