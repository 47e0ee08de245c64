// kern-inline-layers replaces every call of a layer by the ops of the layer, and erases the layer. The
// name of the call and the name of an op are joined; the op gets the index of the layer.
// RUN: lmc-opt %s --kern-inline-layers --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s

// CHECK-NOT:   func.func private
// CHECK-LABEL: func.func @micro(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32> {{.*}}, %[[W:.*]]: tensor<8x8xf32>
// CHECK-NEXT:    %[[H0:.*]] = kern.gemm %[[X]], %[[W]] : {{.*}} {backward, layer = 0 : i64, transpose_b} loc("layers.0/mlp")
// CHECK-NEXT:    %[[Y0:.*]] = kern.launch @silu(%[[H0]]) : {{.*}} {layer = 0 : i64} loc("layers.0")
// CHECK-NEXT:    %[[H1:.*]] = kern.gemm %[[Y0]], %[[W]] : {{.*}} {backward, layer = 1 : i64, transpose_b} loc("layers.1/mlp")
// CHECK-NEXT:    %[[Y1:.*]] = kern.launch @silu(%[[H1]]) : {{.*}} {layer = 1 : i64} loc("layers.1")
// A call that has neither a name nor a layer leaves the names of its ops, and they get no layer.
// CHECK-NEXT:    %[[H2:.*]] = kern.gemm %[[H0]], %[[W]] : {{.*}} {backward, transpose_b} loc("mlp")
// What only an unused result of a call needs is left out.
// CHECK-NEXT:    return %[[Y1]], %[[H2]] :
// CHECK-NOT:   func.func
kern.kernel @silu elementwise {
^bb0(%x: tensor<4x8xf32>):
  kern.yield %x : tensor<4x8xf32>
}
func.func private @layer(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %h = kern.gemm %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> {transpose_b, backward} loc("mlp")
  %y = kern.launch @silu(%h) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y, %h : tensor<4x8xf32>, tensor<4x8xf32>
}
func.func @micro(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0:2 = call @layer(%x, %w) {lm.layer = 0 : i64} : (tensor<4x8xf32>, tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) loc("layers.0")
  %1:2 = call @layer(%0#0, %w) {lm.layer = 1 : i64} : (tensor<4x8xf32>, tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) loc("layers.1")
  %2:2 = call @layer(%0#1, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
  return %1#0, %2#1 : tensor<4x8xf32>, tensor<4x8xf32>
}
func.func private @unused(%x: tensor<4x8xf32>) {
  return
}
