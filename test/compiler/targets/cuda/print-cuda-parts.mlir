// A result in parts: RoPE reads both halves of a head, rotates, and writes both, over its input
// if need be. Tables are read for each head.
// RUN: lmc-translate --kern-to-cuda %s | FileCheck %s --strict-whitespace --match-full-lines

#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 1, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d1, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>

//CHECK:// rope: elementwise of lm.rope
//CHECK-NEXT://
//CHECK-NEXT://   y0[d0, d1, d2, 0, d3] = bf16(x0[d0, d1, d2, 0, d3] * x1 + x0[d0, d1, d2, 1, d3] * x2 * -1)
//CHECK-NEXT://   y0[d0, d1, d2, 1, d3] = bf16(x0[d0, d1, d2, 1, d3] * x1 + x0[d0, d1, d2, 0, d3] * x2 * 1)
//CHECK-NEXT://
//CHECK-NEXT:// x0: bf16 [64, 2048, 40, 2, 32], rows of 2560 elements begin 3072 apart
//CHECK-NEXT:// x1: float [2048, 32]
//CHECK-NEXT:// x2: float [2048, 32]
//CHECK-NEXT:// y0: bf16 [64, 2048, 40, 2, 32], rows of 2560 elements begin 3072 apart
//CHECK-NEXT://
//CHECK-NEXT:// A thread takes 1 x 8 elements along the last dimension.
//CHECK-NEXT:// Reads 671612928 bytes and writes 671088640. Launch: 81920 blocks of 256 threads, 0 bytes of shared memory.
//CHECK-NEXT:#include "lmc/math.cuh"
//CHECK-NEXT:#include "lmc/vector_io.cuh"
//CHECK-EMPTY:
//CHECK-NEXT:using namespace lmc;
//CHECK-EMPTY:
//CHECK-NEXT:extern "C" __global__ void __launch_bounds__(256)
//CHECK-NEXT:lmc_rope(const bf16 *x0, const float *x1, const float *x2, bf16 *y0) {
//CHECK-NEXT:  const u32 v = blockIdx.x * 256 + threadIdx.x;
//CHECK-NEXT:  const u32 c = v % 4 * 8;
//CHECK-NEXT:  const u32 i2 = v / 4 % 40;
//CHECK-NEXT:  const u32 i1 = v / 160 % 2048;
//CHECK-NEXT:  const u32 i0 = v / 327680;
//CHECK-NEXT:  const Vec<bf16, 8> x0v0 = load<8>(x0 + i0 * 6291456 + i1 * 3072 + i2 * 64 + c);
//CHECK-NEXT:  const Vec<float, 8> x1v0 = load<8>(x1 + i1 * 32 + c);
//CHECK-NEXT:  const Vec<bf16, 8> x0v1 = load<8>(x0 + i0 * 6291456 + i1 * 3072 + i2 * 64 + 32 + c);
//CHECK-NEXT:  const Vec<float, 8> x2v0 = load<8>(x2 + i1 * 32 + c);
//CHECK-NEXT:  Vec<bf16, 8> y0v0;
//CHECK-NEXT:  Vec<bf16, 8> y0v1;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:  for (u32 e = 0; e < 8; ++e) {
//CHECK-NEXT:    const float t0 = fmaf(toFloat(x0v0.at[e]), x1v0.at[e], toFloat(x0v1.at[e]) * x2v0.at[e] * -1.0f);
//CHECK-NEXT:    y0v0.at[e] = toBf16(t0);
//CHECK-NEXT:    const float t1 = fmaf(toFloat(x0v1.at[e]), x1v0.at[e], toFloat(x0v0.at[e]) * x2v0.at[e] * 1.0f);
//CHECK-NEXT:    y0v1.at[e] = toBf16(t1);
//CHECK-NEXT:  }
//CHECK-NEXT:  store<8>(y0 + i0 * 6291456 + i1 * 3072 + i2 * 64 + c, y0v0);
//CHECK-NEXT:  store<8>(y0 + i0 * 6291456 + i1 * 3072 + i2 * 64 + 32 + c, y0v1);
//CHECK-NEXT:}
kern.kernel @rope elementwise attributes {arg_pitches = array<i64: 3072, 0, 0, 3072>, arg_rows = array<i64: 131072, 1, 1, 131072>, source_ops = ["lm.rope"]} {
^bb0(%arg0: tensor<64x2048x40x2x32xbf16>, %arg1: tensor<2048x32xf32>, %arg2: tensor<2048x32xf32>):
  %0 = tensor.empty() : tensor<64x2048x40x32xbf16>
  %1 = linalg.generic {indexing_maps = [#map, #map1, #map2, #map2, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg0, %arg0, %arg1, %arg2 : tensor<64x2048x40x2x32xbf16>, tensor<64x2048x40x2x32xbf16>, tensor<2048x32xf32>, tensor<2048x32xf32>) outs(%0 : tensor<64x2048x40x32xbf16>) {
  ^bb0(%in: bf16, %in_1: bf16, %in_2: f32, %in_3: f32, %out: bf16):
    %5 = arith.extf %in : bf16 to f32
    %6 = arith.extf %in_1 : bf16 to f32
    %cst = arith.constant -1.000000e+00 : f32
    %7 = arith.mulf %6, %in_3 : f32
    %8 = arith.mulf %7, %cst : f32
    %9 = arith.mulf %5, %in_2 : f32
    %10 = arith.addf %9, %8 : f32
    %11 = arith.truncf %10 : f32 to bf16
    linalg.yield %11 : bf16
  } -> tensor<64x2048x40x32xbf16>
  %2 = tensor.empty() : tensor<64x2048x40x32xbf16>
  %3 = linalg.generic {indexing_maps = [#map1, #map, #map2, #map2, #map3], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg0, %arg0, %arg1, %arg2 : tensor<64x2048x40x2x32xbf16>, tensor<64x2048x40x2x32xbf16>, tensor<2048x32xf32>, tensor<2048x32xf32>) outs(%2 : tensor<64x2048x40x32xbf16>) {
  ^bb0(%in: bf16, %in_1: bf16, %in_2: f32, %in_3: f32, %out: bf16):
    %5 = arith.extf %in : bf16 to f32
    %6 = arith.extf %in_1 : bf16 to f32
    %cst = arith.constant 1.000000e+00 : f32
    %7 = arith.mulf %6, %in_3 : f32
    %8 = arith.mulf %7, %cst : f32
    %9 = arith.mulf %5, %in_2 : f32
    %10 = arith.addf %9, %8 : f32
    %11 = arith.truncf %10 : f32 to bf16
    linalg.yield %11 : bf16
  } -> tensor<64x2048x40x32xbf16>
  %4 = tensor.empty() : tensor<64x2048x40x2x32xbf16>
  %inserted_slice = tensor.insert_slice %1 into %4[0, 0, 0, 0, 0] [64, 2048, 40, 1, 32] [1, 1, 1, 1, 1] : tensor<64x2048x40x32xbf16> into tensor<64x2048x40x2x32xbf16>
  %inserted_slice_0 = tensor.insert_slice %3 into %inserted_slice[0, 0, 0, 1, 0] [64, 2048, 40, 1, 32] [1, 1, 1, 1, 1] : tensor<64x2048x40x32xbf16> into tensor<64x2048x40x2x32xbf16>
  kern.yield %inserted_slice_0 : tensor<64x2048x40x2x32xbf16>
}
