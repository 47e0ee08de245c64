// lm-fold-transpose: a cast whose scale comes from its input writes the transpose, too.
// RUN: lmc-opt %s --lm-fold-transpose | FileCheck %s
// RUN: lmc-opt %s --lm-fold-transpose --kern-convert-lm | FileCheck %s --check-prefix=KERN

// CHECK-LABEL: func.func @own_scale(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<32x16xbf16>)
// CHECK:         %[[S:.*]] = lm.fp8_scale
// CHECK-NEXT:    %[[C:.*]], %[[T:.*]] = lm.quantize_transposed %[[X]], %[[S]] : (tensor<32x16xbf16>, tensor<f32>) -> (tensor<32x16xf8E5M2>, tensor<16x32xf8E5M2>) {backward}
// CHECK-NEXT:    return %[[C]], %[[T]]
// KERN-LABEL:  func.func @own_scale(
// KERN:          kern.quantize_transposed %{{.*}}, %{{.*}} : (tensor<32x16xbf16>, tensor<f32>) -> (tensor<32x16xf8E5M2>, tensor<16x32xf8E5M2>)
func.func @own_scale(%x: tensor<32x16xbf16>) -> (tensor<32x16xf8E5M2>, tensor<16x32xf8E5M2>) {
  %max = lm.max_abs %x : (tensor<32x16xbf16>) -> tensor<f32>
  %scale = lm.fp8_scale %max of f8E5M2 : (tensor<f32>) -> tensor<f32>
  %codes = lm.quantize %x, %scale : (tensor<32x16xbf16>, tensor<f32>) -> tensor<32x16xf8E5M2> {backward}
  %transposed = lm.transpose %codes : (tensor<32x16xf8E5M2>) -> tensor<16x32xf8E5M2> {backward}
  return %codes, %transposed : tensor<32x16xf8E5M2>, tensor<16x32xf8E5M2>
}

// With a scale that is known before, the kernel that computes x may cast it. Only the transpose reads these codes.
// CHECK-LABEL: func.func @known_scale(
// CHECK-NEXT:    lm.quantize
// CHECK-NEXT:    lm.transpose
// KERN-LABEL:  func.func @known_scale(
// KERN:          kern.transpose %{{.*}} : (tensor<32x16xf8E4M3FN>) -> tensor<16x32xf8E4M3FN>
func.func @known_scale(%x: tensor<32x16xbf16>, %scale: tensor<f32>) -> tensor<16x32xf8E4M3FN> {
  %codes = lm.quantize %x, %scale : (tensor<32x16xbf16>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
  %transposed = lm.transpose %codes : (tensor<32x16xf8E4M3FN>) -> tensor<16x32xf8E4M3FN>
  return %transposed : tensor<16x32xf8E4M3FN>
}
