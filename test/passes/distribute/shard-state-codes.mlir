// dist-shard-state: weights of which a layer reads only codes are a unit of that layer. Ranks exchange its codes.
// RUN: lmc-opt %s --dist-shard-state="shard=2 stage=weights" | FileCheck %s
// RUN: lmc-opt %s --dist-shard-state="shard=2 stage=gradients" | FileCheck %s --check-prefix=WHOLE
// RUN: lmc-opt %s --dist-shard-state="shard=2 stage=weights reduce=each" --lm-insert-optimizer --dist-sync-optimizer | FileCheck %s --check-prefix=SYNC
// RUN: lmc-opt %s --dist-shard-state="shard=2 stage=gradients reduce=each" --lm-insert-optimizer --dist-sync-optimizer | FileCheck %s --check-prefix=JOINED

lm.variable @x input : tensor<16x64xf8E4M3FN> init none
lm.variable @w parameter : tensor<64x64xf32> init zeros
lm.variable @w.grad gradient : tensor<64x64xf32> init zeros {parameter = "w"}
lm.variable @v parameter : tensor<64x64xf32> init zeros
lm.variable @v.grad gradient : tensor<64x64xf32> init zeros {parameter = "v"}

// CHECK:     lm.variable @unit.0 parameter : tensor<16x256xf32>
// CHECK:     lm.variable @unit.0.codes compute_copy : tensor<16x256xf8E4M3FN> init none {anonymous, dist.rounded = f32, dist.starts = array<i64: 0, 16>}
// CHECK:     lm.variable @unit.0.scales compute_copy : tensor<2x4xf32> init none {anonymous}
// CHECK-NOT: @unit.1

// Ranks that have whole weights have their codes.
// WHOLE:     lm.variable @unit.0.whole compute_copy : tensor<8192xf8E4M3FN>
// WHOLE:     lm.variable @w.compute compute_copy : tensor<64x64xf8E4M3FN> init none {storage = @unit.0.whole, storage_offset = 0 : i64}
func.func private @layer(%x: tensor<16x64xf8E4M3FN>, %w: tensor<64x64xf8E4M3FN>, %s: tensor<f32>, %v: tensor<64x64xf8E4M3FN>, %t: tensor<f32>) -> tensor<16x64xf32> {
  %y = lm.scaled_matmul %x, %w scales %s, %s : (tensor<16x64xf8E4M3FN>, tensor<64x64xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<16x64xf32> {transpose_b}
  %z = lm.scaled_matmul %x, %v scales %s, %t acc %y : (tensor<16x64xf8E4M3FN>, tensor<64x64xf8E4M3FN>, tensor<f32>, tensor<f32>, tensor<16x64xf32>) -> tensor<16x64xf32> {transpose_b}
  return %z : tensor<16x64xf32>
}
// CHECK-LABEL: func.func @micro
// CHECK:         %[[PIECE:.*]] = lm.load @unit.0.codes
// CHECK:         dist.all_gather %[[PIECE]] {{.*}} (tensor<16x256xf8E4M3FN>) -> tensor<32x256xf8E4M3FN> {layer = 0 : i64}
// CHECK-NOT:     dist.all_gather
// CHECK-NOT:     lm.max_abs
// CHECK-NOT:     lm.quantize
// CHECK:         call @layer
// WHOLE-LABEL: func.func @micro
// WHOLE:         %[[W:.*]] = lm.load @w.compute : tensor<64x64xf8E4M3FN>
// WHOLE:         %[[V:.*]] = lm.load @v.compute : tensor<64x64xf8E4M3FN>
// WHOLE:         call @layer(%{{.*}}, %[[W]], %{{.*}}, %[[V]], %{{.*}})

// Behind the step, and in @refresh, all ranks find the scales together, and each casts its piece.
// SYNC-LABEL: func.func @optimizer
// SYNC:         lm.store %[[NEW:.*]], @unit.0 :
// SYNC:         %[[MAX:.*]] = lm.piece_max_abs %[[NEW]] of %[[RANK:.*]] : (tensor<16x256xf32>, tensor<f32>) -> tensor<2xf32> {starts = array<i64: 0, 16>}
// SYNC:         %[[ALL:.*]] = dist.all_gather %{{.*}} over @ranks shard : (tensor<2xf32>) -> tensor<4xf32>
// SYNC-NEXT:    %[[SCALES:.*]] = lm.ranks_fp8_scale %[[ALL]] of f8E4M3FN : (tensor<4xf32>) -> tensor<2x4xf32>
// SYNC:         %[[CODES:.*]] = lm.piece_quantize %[[NEW]] of %[[RANK]] scales %{{.*}}, %{{.*}} : {{.*}} -> tensor<16x256xf8E4M3FN> {starts = array<i64: 0, 16>}
// SYNC-NEXT:    lm.store %[[CODES]], @unit.0.codes
// SYNC-NEXT:    lm.store %{{.*}}, @unit.0.scales
// SYNC-LABEL: func.func @refresh
// SYNC:         lm.piece_max_abs
// SYNC:         lm.store %{{.*}}, @unit.0.codes
// JOINED-LABEL: func.func @optimizer
// JOINED:         %[[CODES:.*]] = lm.piece_quantize
// JOINED-NEXT:    dist.all_gather %[[CODES]] {{.*}} -> tensor<32x256xf8E4M3FN>
// JOINED:         lm.store %{{.*}}, @unit.0.whole : tensor<8192xf8E4M3FN>
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
