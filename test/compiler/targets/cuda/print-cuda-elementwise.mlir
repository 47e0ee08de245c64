// Hero elementwise: all loads of a thread precede its stores; vectors are as wide as the widest
// type, the pitches and the extents allow; offsets are 64 bits where 2^31 elements are spanned.
// RUN: lmc-translate --kern-to-cuda %s | FileCheck %s --strict-whitespace --match-full-lines

#map = affine_map<(d0, d1) -> (d0, d1)>

// Columns of a wider tensor.
//CHECK:// swiglu: elementwise of lm.swiglu
//CHECK-NEXT://
//CHECK-NEXT://   y0 = bf16(x0 * (1 / (1 + exp(-x0))) * x1)
//CHECK-NEXT://
//CHECK-NEXT:// x0: bf16 [131072, 8192], rows of 8192 elements begin 16384 apart
//CHECK-NEXT:// x1: bf16 [131072, 8192], rows of 8192 elements begin 16384 apart
//CHECK-NEXT:// y0: bf16 [131072, 8192]
//CHECK-NEXT://
//CHECK-NEXT:// A thread takes 4 x 8 elements along the last dimension.
//CHECK-NEXT:// Reads 4294967296 bytes and writes 2147483648. Launch: 131072 blocks of 256 threads, 0 bytes of shared memory.
//CHECK-NEXT:#include "lmc/math.cuh"
//CHECK-NEXT:#include "lmc/vector_io.cuh"
//CHECK-EMPTY:
//CHECK-NEXT:using namespace lmc;
//CHECK-EMPTY:
//CHECK-NEXT:extern "C" __global__ void __launch_bounds__(256)
//CHECK-NEXT:lmc_swiglu(const bf16 *x0, const bf16 *x1, bf16 *y0) {
//CHECK-NEXT:  Vec<bf16, 8> x0v0[4];
//CHECK-NEXT:  Vec<bf16, 8> x1v0[4];
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:  for (u32 k = 0; k < 4; ++k) {
//CHECK-NEXT:    const u32 v = blockIdx.x * 1024 + k * 256 + threadIdx.x;
//CHECK-NEXT:    const u32 c = v % 1024 * 8;
//CHECK-NEXT:    const u32 row = v / 1024;
//CHECK-NEXT:    x0v0[k] = load<8>(x0 + u64(row) * 16384 + c);
//CHECK-NEXT:    x1v0[k] = load<8>(x1 + u64(row) * 16384 + c);
//CHECK-NEXT:  }
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:  for (u32 k = 0; k < 4; ++k) {
//CHECK-NEXT:    const u32 v = blockIdx.x * 1024 + k * 256 + threadIdx.x;
//CHECK-NEXT:    const u32 c = v % 1024 * 8;
//CHECK-NEXT:    const u32 row = v / 1024;
//CHECK-NEXT:    Vec<bf16, 8> y0v;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 e = 0; e < 8; ++e) {
//CHECK-NEXT:      const float t0 = toFloat(x0v0[k].at[e]);
//CHECK-NEXT:      const bf16 t1 = toBf16(t0 * (1.0f / (1.0f + expf(-t0))) * toFloat(x1v0[k].at[e]));
//CHECK-NEXT:      y0v.at[e] = t1;
//CHECK-NEXT:    }
//CHECK-NEXT:    store<8>(y0 + row * 8192 + c, y0v);
//CHECK-NEXT:  }
//CHECK-NEXT:}
kern.kernel @swiglu elementwise attributes {arg_pitches = array<i64: 16384, 16384, 0>, arg_rows = array<i64: 131072, 131072, 1>, source_ops = ["lm.swiglu"]} {
^bb0(%arg0: tensor<131072x8192xbf16>, %arg1: tensor<131072x8192xbf16>):
  %0 = tensor.empty() : tensor<131072x8192xbf16>
  %1 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0, %arg1 : tensor<131072x8192xbf16>, tensor<131072x8192xbf16>) outs(%0 : tensor<131072x8192xbf16>) {
  ^bb0(%in: bf16, %in_0: bf16, %out: bf16):
    %2 = arith.extf %in : bf16 to f32
    %3 = arith.extf %in_0 : bf16 to f32
    %cst = arith.constant 1.000000e+00 : f32
    %4 = arith.negf %2 : f32
    %5 = math.exp %4 : f32
    %6 = arith.addf %cst, %5 : f32
    %7 = arith.divf %cst, %6 : f32
    %8 = arith.mulf %2, %7 : f32
    %9 = arith.mulf %8, %3 : f32
    %10 = arith.truncf %9 : f32 to bf16
    linalg.yield %10 : bf16
  } -> tensor<131072x8192xbf16>
  kern.yield %1 : tensor<131072x8192xbf16>
}

// A flat domain, whatever its shape: 1,003,000 elements are whole vectors of 4, but not whole
// blocks.
//CHECK:// cast: elementwise of lm.cast
//CHECK-NEXT://
//CHECK-NEXT://   y0 = bf16(x0)
//CHECK-NEXT://
//CHECK-NEXT:// x0: float [1000, 1003]
//CHECK-NEXT:// y0: bf16 [1000, 1003]
//CHECK-NEXT://
//CHECK-NEXT:// A thread takes 1 x 4 elements.
//CHECK-NEXT:// Reads 4012000 bytes and writes 2006000. Launch: 980 blocks of 256 threads, 0 bytes of shared memory.
//CHECK-NEXT:#include "lmc/math.cuh"
//CHECK-NEXT:#include "lmc/vector_io.cuh"
//CHECK-EMPTY:
//CHECK-NEXT:using namespace lmc;
//CHECK-EMPTY:
//CHECK-NEXT:extern "C" __global__ void __launch_bounds__(256)
//CHECK-NEXT:lmc_cast(const float *x0, bf16 *y0) {
//CHECK-NEXT:  const u32 v = blockIdx.x * 256 + threadIdx.x;
//CHECK-NEXT:  const u32 c = v * 4;
//CHECK-NEXT:  if (v >= 250750)
//CHECK-NEXT:    return;
//CHECK-NEXT:  const Vec<float, 4> x0v0 = load<4>(x0 + c);
//CHECK-NEXT:  Vec<bf16, 4> y0v;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:  for (u32 e = 0; e < 4; ++e) {
//CHECK-NEXT:    y0v.at[e] = toBf16(x0v0.at[e]);
//CHECK-NEXT:  }
//CHECK-NEXT:  store<4>(y0 + c, y0v);
//CHECK-NEXT:}
#flat = affine_map<(i, j) -> (i, j)>
kern.kernel @cast elementwise attributes {source_ops = ["lm.cast"]} {
^bb0(%x: tensor<1000x1003xf32>):
  %e = tensor.empty() : tensor<1000x1003xbf16>
  %y = linalg.generic {indexing_maps = [#flat, #flat], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<1000x1003xf32>) outs(%e : tensor<1000x1003xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %t = arith.truncf %a : f32 to bf16
    linalg.yield %t : bf16
  } -> tensor<1000x1003xbf16>
  kern.yield %y : tensor<1000x1003xbf16>
}
