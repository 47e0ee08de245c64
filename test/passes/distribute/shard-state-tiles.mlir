// dist-shard-state: ranks exchange the codes of weights with scales of tiles. A tile may be on several ranks.
// RUN: lmc-opt %s --dist-shard-state="shard=2 stage=weights" | FileCheck %s
// RUN: lmc-opt %s --dist-shard-state="shard=2 stage=gradients" | FileCheck %s --check-prefix=WHOLE
// RUN: lmc-opt %s --dist-shard-state="shard=2 stage=weights reduce=each" --lm-insert-optimizer --dist-sync-optimizer | FileCheck %s --check-prefix=SYNC
// RUN: lmc-opt %s --dist-shard-state="shard=2 stage=gradients reduce=each" --lm-insert-optimizer --dist-sync-optimizer | FileCheck %s --check-prefix=JOINED

lm.variable @x input : tensor<128x256xf8E4M3FN> init none
lm.variable @x.scales input : tensor<2x128xf32> init none
lm.variable @w parameter : tensor<128x256xf32> init zeros
lm.variable @w.grad gradient : tensor<128x256xf32> init zeros {parameter = "w"}
lm.variable @v parameter : tensor<256x256xf32> init zeros
lm.variable @v.grad gradient : tensor<256x256xf32> init zeros {parameter = "v"}

// The unit has 768 rows of 128 elements, and each rank 384: the tiles of the first 128 rows of @v are on both. A matrix has two
// such blocks in a row; rows of scales are padded.
// CHECK-DAG: lm.variable @unit.0 parameter : tensor<192x256xf32>
// CHECK-DAG: lm.variable @unit.0.codes compute_copy : tensor<384x128xf8E4M3FN> init none {anonymous, dist.columns = array<i64: 2, 2>, dist.rounded = f32, dist.starts = array<i64: 0, 256>, dist.tile_scales = [@w.scales, @v.scales]}
// CHECK-DAG: lm.variable @w.scales compute_copy : tensor<1x4xf32> init none {anonymous}
// CHECK-DAG: lm.variable @v.scales compute_copy : tensor<2x4xf32> init none {anonymous}

// WHOLE:     lm.variable @unit.0.whole compute_copy : tensor<98304xf8E4M3FN>
// WHOLE:     lm.variable @w.compute compute_copy : tensor<128x256xf8E4M3FN> init none {storage = @unit.0.whole, storage_offset = 0 : i64}
func.func private @layer(%x: tensor<128x256xf8E4M3FN>, %s: tensor<2x128xf32>, %w: tensor<128x256xf8E4M3FN>, %sw: tensor<1x4xf32>, %v: tensor<256x256xf8E4M3FN>, %sv: tensor<2x4xf32>) -> (tensor<128x128xf32>, tensor<128x256xf32>) {
  %y = lm.scaled_matmul %x, %w scales %s, %sw : (tensor<128x256xf8E4M3FN>, tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<1x4xf32>) -> tensor<128x128xf32> {tiles, transpose_b}
  %z = lm.scaled_matmul %x, %v scales %s, %sv : (tensor<128x256xf8E4M3FN>, tensor<256x256xf8E4M3FN>, tensor<2x128xf32>, tensor<2x4xf32>) -> tensor<128x256xf32> {tiles, transpose_b}
  return %y, %z : tensor<128x128xf32>, tensor<128x256xf32>
}
// CHECK-LABEL: func.func @micro
// CHECK-DAG:     %[[PIECE:.*]] = lm.load @unit.0.codes
// CHECK-DAG:     dist.all_gather %[[PIECE]] {{.*}} (tensor<384x128xf8E4M3FN>) -> tensor<768x128xf8E4M3FN> {layer = 0 : i64}
// CHECK-DAG:     %[[SW:.*]] = lm.load @w.scales
// CHECK-DAG:     %[[SV:.*]] = lm.load @v.scales
// CHECK-NOT:     dist.all_gather
// CHECK-NOT:     lm.quantize_tiles
// CHECK:         call @layer(%{{.*}}, %{{.*}}, %{{.*}}, %[[SW]], %{{.*}}, %[[SV]])
// WHOLE-LABEL: func.func @micro
// WHOLE-DAG:     %[[W:.*]] = lm.load @w.compute : tensor<128x256xf8E4M3FN>
// WHOLE-DAG:     %[[SW:.*]] = lm.load @w.scales
// WHOLE-DAG:     %[[V:.*]] = lm.load @v.compute : tensor<256x256xf8E4M3FN>
// WHOLE:         call @layer(%{{.*}}, %{{.*}}, %[[W]], %[[SW]], %[[V]], %{{.*}})

// Behind the step, and in @refresh, ranks gather the scales of rows, and make those of tiles from them.
// SYNC-LABEL: func.func @optimizer
// SYNC:         lm.store %{{.*}}, @unit.0 :
// SYNC:         %[[OWN:.*]] = lm.row_scales %[[PIECE:.*]] of f8E4M3FN : (tensor<384x128xf32>) -> tensor<384xbf16>
// SYNC:         %[[ALL:.*]] = dist.all_gather %[[OWN]] over @ranks shard : (tensor<384xbf16>) -> tensor<768xbf16>
// SYNC:         %[[SW:.*]] = lm.tile_scales %{{.*}} : (tensor<128x2xbf16>) -> tensor<1x4xf32>
// SYNC:         lm.store %[[SW]], @w.scales
// SYNC:         %[[SV:.*]] = lm.tile_scales %{{.*}} : (tensor<256x2xbf16>) -> tensor<2x4xf32>
// SYNC:         lm.store %[[SV]], @v.scales
// SYNC:         %[[CODES:.*]] = lm.piece_quantize_tiles %[[PIECE]] of %{{.*}} scales %[[SW]], %[[SV]] : {{.*}} -> tensor<384x128xf8E4M3FN> {columns = array<i64: 2, 2>, starts = array<i64: 0, 256>}
// SYNC-NEXT:    lm.store %[[CODES]], @unit.0.codes
// SYNC-LABEL: func.func @refresh
// SYNC:         lm.row_scales
// SYNC:         lm.store %{{.*}}, @unit.0.codes
// JOINED-LABEL: func.func @optimizer
// JOINED:         %[[CODES:.*]] = lm.piece_quantize_tiles
// JOINED-NEXT:    dist.all_gather %[[CODES]] {{.*}} -> tensor<768x128xf8E4M3FN>
// JOINED:         lm.store %{{.*}}, @unit.0.whole : tensor<98304xf8E4M3FN>
func.func @micro() {
  %x = lm.load @x : tensor<128x256xf8E4M3FN>
  %s = lm.load @x.scales : tensor<2x128xf32>
  %w = lm.load @w : tensor<128x256xf32>
  %c, %sw = lm.quantize_tiles %w : (tensor<128x256xf32>) -> (tensor<128x256xf8E4M3FN>, tensor<1x4xf32>)
  %v = lm.load @v : tensor<256x256xf32>
  %d, %sv = lm.quantize_tiles %v : (tensor<256x256xf32>) -> (tensor<256x256xf8E4M3FN>, tensor<2x4xf32>)
  %y, %z = call @layer(%x, %s, %c, %sw, %d, %sv) {lm.layer = 0} : (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<128x256xf8E4M3FN>, tensor<1x4xf32>, tensor<256x256xf8E4M3FN>, tensor<2x4xf32>) -> (tensor<128x128xf32>, tensor<128x256xf32>)
  %dw = lm.matmul %y, %z : (tensor<128x128xf32>, tensor<128x256xf32>) -> tensor<128x256xf32> {backward, transpose_a}
  %dv = lm.matmul %z, %z : (tensor<128x256xf32>, tensor<128x256xf32>) -> tensor<256x256xf32> {backward, transpose_a}
  lm.accumulate %dw, @w.grad : tensor<128x256xf32>
  lm.accumulate %dv, @v.grad : tensor<256x256xf32>
  return
}
