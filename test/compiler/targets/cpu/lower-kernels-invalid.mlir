// RUN: not lmc-opt %s --kern-lower-kernels 2>&1 | FileCheck %s
// RUN: not lmc-opt %s --kern-lower-kernels=vector-width=100 2>&1 | FileCheck %s --check-prefix=WIDTH

// WIDTH: error: kern-lower-kernels: vector-width must be 128, 256 or 512, not 100

#rc = affine_map<(r, c) -> (r, c)>
#cr = affine_map<(r, c) -> (c, r)>

// CHECK: lower-kernels-invalid.mlir:[[#@LINE+1]]:1: error: 'kern.kernel' op cannot be emitted: input 0 is not contiguous along the innermost dimension: it may only be the last index, as it is
kern.kernel @transpose elementwise {
^bb0(%x: tensor<8x4xf32>):
  %e = tensor.empty() : tensor<4x8xf32>
  %y = linalg.generic {indexing_maps = [#cr, #rc], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x4xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4x8xf32>
  kern.yield %y : tensor<4x8xf32>
}
