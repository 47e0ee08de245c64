// Hero gather: an index from memory is clamped into its tensor.
// RUN: lmc-translate --kern-to-cuda %s | FileCheck %s --strict-whitespace --match-full-lines

#map = affine_map<(d0, d1) -> (d0, d1)>
#map1 = affine_map<(d0, d1) -> (d0)>

//CHECK:// embedding: gather of lm.embedding
//CHECK-NEXT://
//CHECK-NEXT://   y0 = x1[x0, i1]
//CHECK-NEXT://
//CHECK-NEXT:// x0: i32 [131072]
//CHECK-NEXT:// x1: bf16 [131072, 2048]
//CHECK-NEXT:// y0: bf16 [131072, 2048]
//CHECK-NEXT://
//CHECK-NEXT:// A thread takes 8 x 8 elements along the last dimension.
//CHECK-NEXT:// Reads 537395200 bytes and writes 536870912. Launch: 16384 blocks of 256 threads, 0 bytes of shared memory.
//CHECK-NEXT:#include "lmc/math.cuh"
//CHECK-NEXT:#include "lmc/vector_io.cuh"
//CHECK-EMPTY:
//CHECK-NEXT:using namespace lmc;
//CHECK-EMPTY:
//CHECK-NEXT:extern "C" __global__ void __launch_bounds__(256)
//CHECK-NEXT:lmc_embedding(const i32 *x0, const bf16 *x1, bf16 *y0) {
//CHECK-NEXT:  i32 x0v0[8];
//CHECK-NEXT:  Vec<bf16, 8> x1v0[8];
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:  for (u32 k = 0; k < 8; ++k) {
//CHECK-NEXT:    const u32 v = blockIdx.x * 2048 + k * 256 + threadIdx.x;
//CHECK-NEXT:    const u32 c = v % 256 * 8;
//CHECK-NEXT:    const u32 row = v / 256;
//CHECK-NEXT:    x0v0[k] = loadOne(x0 + row);
//CHECK-NEXT:    x1v0[k] = load<8>(x1 + clampIndex(i64(x0v0[k]), 131072) * 2048 + c);
//CHECK-NEXT:  }
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:  for (u32 k = 0; k < 8; ++k) {
//CHECK-NEXT:    const u32 v = blockIdx.x * 2048 + k * 256 + threadIdx.x;
//CHECK-NEXT:    const u32 c = v % 256 * 8;
//CHECK-NEXT:    const u32 row = v / 256;
//CHECK-NEXT:    Vec<bf16, 8> y0v;
//CHECK-NEXT:#pragma unroll
//CHECK-NEXT:    for (u32 e = 0; e < 8; ++e) {
//CHECK-NEXT:      y0v.at[e] = x1v0[k].at[e];
//CHECK-NEXT:    }
//CHECK-NEXT:    store<8>(y0 + row * 2048 + c, y0v);
//CHECK-NEXT:  }
//CHECK-NEXT:}
kern.kernel @embedding gather attributes {source_ops = ["lm.embedding"]} {
^bb0(%arg0: tensor<131072xi32>, %arg1: tensor<131072x2048xbf16>):
  %0 = tensor.empty() : tensor<131072x2048xbf16>
  %1 = linalg.generic {indexing_maps = [#map1, #map], iterator_types = ["parallel", "parallel"]} ins(%arg0 : tensor<131072xi32>) outs(%0 : tensor<131072x2048xbf16>) {
  ^bb0(%in: i32, %out: bf16):
    %2 = arith.index_cast %in : i32 to index
    %3 = linalg.index 1 : index
    %extracted = tensor.extract %arg1[%2, %3] : tensor<131072x2048xbf16>
    linalg.yield %extracted : bf16
  } -> tensor<131072x2048xbf16>
  kern.yield %1 : tensor<131072x2048xbf16>
}
