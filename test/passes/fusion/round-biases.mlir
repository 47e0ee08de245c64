// kern-round-biases: a product gets its bias in the element type of the result.
// RUN: lmc-opt %s --kern-round-biases | FileCheck %s

// The conversion belongs to the pass and the layer of the product.
// CHECK-LABEL: func.func @converted(
// CHECK-SAME:    %[[X:[^ ]*]]: tensor<8x4xbf16>, %[[W:[^ ]*]]: tensor<6x4xbf16>, %[[B:[^ ]*]]: tensor<6xf32>)
// CHECK-NEXT:    %[[C:.*]] = kern.fusion elementwise (%[[A:.*]] = %[[B]] : tensor<6xf32>) -> tensor<6xbf16> {
// CHECK:           linalg.generic {{.*}} ins(%[[A]] : tensor<6xf32>) outs(%{{.*}} : tensor<6xbf16>) {
// CHECK:             arith.truncf %{{.*}} : f32 to bf16
// CHECK:         } {backward, layer = 3 : i64, source_ops = ["lm.round_bias"]}
// CHECK-NEXT:    %[[Y:.*]] = kern.gemm %[[X]], %[[W]] bias %[[C]] : (tensor<8x4xbf16>, tensor<6x4xbf16>, tensor<6xbf16>) -> tensor<8x6xbf16> {backward, layer = 3 : i64, transpose_b}
// CHECK-NEXT:    return %[[Y]]
func.func @converted(%x: tensor<8x4xbf16>, %w: tensor<6x4xbf16>, %b: tensor<6xf32>) -> tensor<8x6xbf16> {
  %y = kern.gemm %x, %w bias %b : (tensor<8x4xbf16>, tensor<6x4xbf16>, tensor<6xf32>) -> tensor<8x6xbf16> {backward, layer = 3 : i64, transpose_b}
  return %y : tensor<8x6xbf16>
}

// A bias that has the result's type, and a product without a bias, stay as they are.
// CHECK-LABEL: func.func @unchanged(
// CHECK-NOT:     kern.fusion
// CHECK:         return
func.func @unchanged(%x: tensor<8x4xf32>, %w: tensor<6x4xf32>, %b: tensor<6xf32>, %h: tensor<8x4xbf16>, %v: tensor<6x4xbf16>) -> (tensor<8x6xf32>, tensor<8x6xbf16>) {
  %y = kern.gemm %x, %w bias %b : (tensor<8x4xf32>, tensor<6x4xf32>, tensor<6xf32>) -> tensor<8x6xf32> {transpose_b}
  %z = kern.gemm %h, %v : (tensor<8x4xbf16>, tensor<6x4xbf16>) -> tensor<8x6xbf16> {transpose_b}
  return %y, %z : tensor<8x6xf32>, tensor<8x6xbf16>
}
