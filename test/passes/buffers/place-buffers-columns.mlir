// Columns of a matrix are views: kernels read and write rows that lie apart, a library
// gets a dense copy.
// RUN: lmc-opt %s --plan-assign-buffers --plan-pack-arenas --plan-emit-commands --plan-check-aliasing | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
kern.kernel @negate elementwise {
^bb0(%x: tensor<8x4xf32>):
  %e = tensor.empty() : tensor<8x4xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x4xf32>) outs(%e : tensor<8x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<8x4xf32>
  kern.yield %y : tensor<8x4xf32>
}

lm.variable @a input : tensor<8x8xf32> init none
lm.variable @r scalar : tensor<8x8xf32> init none
lm.variable @g scalar : tensor<8x8xf32> init none

// The kernel's variant knows the pitches, in elements.
// CHECK:       kern.kernel @negate_strided elementwise attributes {arg_pitches = array<i64: 8, 8>, arg_rows = array<i64: 8, 8>}

// Each half of the product is read in place, and each result made in its half of the whole.
// CHECK-LABEL: plan.function @kernel
// CHECK:       plan.gemm
// CHECK:       %[[RIGHT:.*]] = plan.slice @workspace[16] {{.*}} : <tensor<8x4xf32>> {pitch = 32 : i64, rows = 8 : i64}
// CHECK-NEXT:  %[[TO:.*]] = plan.slice @workspace[272] {{.*}} : <tensor<8x4xf32>> {pitch = 32 : i64, rows = 8 : i64}
// CHECK-NEXT:  plan.launch @negate_strided items 8 {{.*}}(
// CHECK-NEXT:    in {{ *}}%[[RIGHT]] :
// CHECK-NEXT:    out {{ *}}%[[TO]] :
// CHECK-NEXT:  )
// CHECK-NOT:   plan.copy
// CHECK:       plan.function @library
func.func @kernel() {
  %a = lm.load @a : tensor<8x8xf32>
  %x = kern.gemm %a, %a : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %right = tensor.extract_slice %x[0, 4] [8, 4] [1, 1] : tensor<8x8xf32> to tensor<8x4xf32>
  %left = tensor.extract_slice %x[0, 0] [8, 4] [1, 1] : tensor<8x8xf32> to tensor<8x4xf32>
  %n = kern.launch @negate(%right) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %m = kern.launch @negate(%left) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %e = tensor.empty() : tensor<8x8xf32>
  %0 = tensor.insert_slice %m into %e[0, 0] [8, 4] [1, 1] : tensor<8x4xf32> into tensor<8x8xf32>
  %1 = tensor.insert_slice %n into %0[0, 4] [8, 4] [1, 1] : tensor<8x4xf32> into tensor<8x8xf32>
  %y = kern.gemm %1, %a : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %y, @r : tensor<8x8xf32>
  return
}

// CHECK:       %[[DENSE:.*]] = plan.slice {{.*}} : <tensor<8x4xf32>>{{$}}
// CHECK-NEXT:  %[[COLUMNS:.*]] = plan.slice {{.*}} : <tensor<8x4xf32>> {pitch = 32 : i64, rows = 8 : i64}
// CHECK-NEXT:  plan.copy {{.*}}(
// CHECK-NEXT:    x {{ *}}%[[COLUMNS]] :
// CHECK-NEXT:    d {{ *}}%[[DENSE]] :
// CHECK-NEXT:  )
// CHECK:       plan.gemm {{.*}}(
// CHECK-NEXT:    a {{ *}}%[[DENSE]] :
// CHECK-NEXT:    b {{ *}}%[[DENSE]] :
func.func @library() {
  %a = lm.load @a : tensor<8x8xf32>
  %x = kern.gemm %a, %a : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %left = tensor.extract_slice %x[0, 0] [8, 4] [1, 1] : tensor<8x8xf32> to tensor<8x4xf32>
  %y = kern.gemm %left, %left : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x8xf32> {transpose_b}
  lm.store %y, @g : tensor<8x8xf32>
  return
}
