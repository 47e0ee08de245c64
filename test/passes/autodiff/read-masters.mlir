// lm-read-masters: a copy that only casts to 8-bit floats read is rounded where it is read.
// RUN: lmc-opt %s --lm-read-masters | FileCheck %s
// RUN: lmc-opt %s --lm-read-masters --lm-keep-codes --cse | FileCheck %s --check-prefix=KEEP

// CHECK:     lm.variable @w parameter
// CHECK-NOT: @w.compute
// CHECK:     lm.variable @v.compute
lm.variable @w parameter : tensor<32x16xf32> init zeros
lm.variable @w.compute compute_copy : tensor<32x16xbf16> init copy_of(source = "w") {parameter = "w"}
lm.variable @v parameter : tensor<32x16xf32> init zeros
lm.variable @v.compute compute_copy : tensor<32x16xbf16> init copy_of(source = "v") {parameter = "v"}
lm.variable @y input : tensor<32x32xf32> init none
lm.variable @z input : tensor<32x16xbf16> init none

// CHECK-LABEL: func.func @micro_first
// CHECK:         %[[M:.*]] = lm.load @w : tensor<32x16xf32>
// CHECK-NEXT:    %[[W:.*]] = lm.cast %[[M]] : (tensor<32x16xf32>) -> tensor<32x16xbf16>
// CHECK-NEXT:    lm.max_abs %[[W]]
// CHECK:         lm.quantize %[[W]]
func.func @micro_first() {
  %w = lm.load @w.compute : tensor<32x16xbf16>
  %max = lm.max_abs %w : (tensor<32x16xbf16>) -> tensor<f32>
  %scale = lm.fp8_scale %max of f8E4M3FN : (tensor<f32>) -> tensor<f32>
  %codes = lm.quantize %w, %scale : (tensor<32x16xbf16>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
  %y = lm.scaled_matmul %codes, %codes scales %scale, %scale : (tensor<32x16xf8E4M3FN>, tensor<32x16xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<32x32xf32> {transpose_b}
  lm.store %y, @y : tensor<32x32xf32>
  return
}

// The codes of later micro-steps are those of the first.
// KEEP-LABEL: func.func @micro_last
// KEEP-NOT:     lm.quantize %
// KEEP:         lm.load @w.codes
// Something else reads this copy, too.
// CHECK-LABEL: func.func @micro_last
// CHECK:         lm.load @v.compute
func.func @micro_last() {
  %w = lm.load @w.compute : tensor<32x16xbf16>
  %max = lm.max_abs %w : (tensor<32x16xbf16>) -> tensor<f32>
  %scale = lm.fp8_scale %max of f8E4M3FN : (tensor<f32>) -> tensor<f32>
  %codes = lm.quantize %w, %scale : (tensor<32x16xbf16>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
  %y = lm.scaled_matmul %codes, %codes scales %scale, %scale : (tensor<32x16xf8E4M3FN>, tensor<32x16xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<32x32xf32> {transpose_b}
  lm.store %y, @y : tensor<32x32xf32>
  %v = lm.load @v.compute : tensor<32x16xbf16>
  lm.store %v, @z : tensor<32x16xbf16>
  return
}
