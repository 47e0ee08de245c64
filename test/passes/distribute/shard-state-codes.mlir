// dist-shard-state: weights whose codes a layer reads are a unit of that layer, which is gathered before the casts.
// RUN: lmc-opt %s --dist-shard-state="shard=2 stage=weights" | FileCheck %s

lm.variable @x input : tensor<16x64xf8E4M3FN> init none
lm.variable @w parameter : tensor<64x64xf32> init zeros
lm.variable @w.grad gradient : tensor<64x64xf32> init zeros {parameter = "w"}
lm.variable @v parameter : tensor<64x64xf32> init zeros
lm.variable @v.grad gradient : tensor<64x64xf32> init zeros {parameter = "v"}

// CHECK:     lm.variable @unit.0 parameter : tensor<16x256xf32>
// CHECK-NOT: @unit.1
func.func private @layer(%x: tensor<16x64xf8E4M3FN>, %w: tensor<64x64xf8E4M3FN>, %s: tensor<f32>, %v: tensor<64x64xf8E4M3FN>, %t: tensor<f32>) -> tensor<16x64xf32> {
  %y = lm.scaled_matmul %x, %w scales %s, %s : (tensor<16x64xf8E4M3FN>, tensor<64x64xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<16x64xf32> {transpose_b}
  %z = lm.scaled_matmul %x, %v scales %s, %t acc %y : (tensor<16x64xf8E4M3FN>, tensor<64x64xf8E4M3FN>, tensor<f32>, tensor<f32>, tensor<16x64xf32>) -> tensor<16x64xf32> {transpose_b}
  return %z : tensor<16x64xf32>
}
// CHECK-LABEL: func.func @micro
// CHECK:         dist.all_gather {{.*}} {layer = 0 : i64}
// CHECK-NOT:     dist.all_gather
// CHECK:         lm.max_abs
// CHECK:         lm.max_abs
// CHECK:         call @layer
func.func @micro() {
  %x = lm.load @x : tensor<16x64xf8E4M3FN>
  %w = lm.load @w : tensor<64x64xf32>
  %max = lm.max_abs %w : (tensor<64x64xf32>) -> tensor<f32>
  %s = lm.fp8_scale %max of f8E4M3FN : (tensor<f32>) -> tensor<f32>
  %c = lm.quantize %w, %s : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf8E4M3FN>
  %v = lm.load @v : tensor<64x64xf32>
  %max2 = lm.max_abs %v : (tensor<64x64xf32>) -> tensor<f32>
  %t = lm.fp8_scale %max2 of f8E4M3FN : (tensor<f32>) -> tensor<f32>
  %d = lm.quantize %v, %t : (tensor<64x64xf32>, tensor<f32>) -> tensor<64x64xf8E4M3FN>
  %y = call @layer(%x, %c, %s, %d, %t) {lm.layer = 0} : (tensor<16x64xf8E4M3FN>, tensor<64x64xf8E4M3FN>, tensor<f32>, tensor<64x64xf8E4M3FN>, tensor<f32>) -> tensor<16x64xf32>
  %dw = lm.matmul %y, %y : (tensor<16x64xf32>, tensor<16x64xf32>) -> tensor<64x64xf32> {backward, transpose_a}
  lm.accumulate %dw, @w.grad : tensor<64x64xf32>
  lm.accumulate %dw, @v.grad : tensor<64x64xf32>
  return
}
