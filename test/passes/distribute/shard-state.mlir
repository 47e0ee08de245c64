// dist-shard-state forms units and divides them between two ranks; with one rank it only declares
// the mesh.
// RUN: lmc-opt %s --dist-shard-state | FileCheck %s --check-prefix=ONE
// RUN: lmc-opt %s --dist-shard-state="shard=2 stage=weights" | FileCheck %s --check-prefix=WEIGHTS
// RUN: lmc-opt %s --dist-shard-state="shard=2 stage=optimizer" | FileCheck %s --check-prefix=WHOLE
// RUN: lmc-opt %s --dist-shard-state="replicate=2 stage=none" | FileCheck %s --check-prefix=NONE
// RUN: lmc-opt %s --dist-shard-state="replicate=3 shard=2 stage=gradients payload=bf16" | FileCheck %s --check-prefix=HYBRID
// RUN: lmc-opt %s --dist-shard-state="replicate=3 shard=2 stage=gradients payload=f16" | FileCheck %s --check-prefix=SCALED
// RUN: lmc-opt %s --dist-shard-state="shard=2 stage=optimizer reduce=last" | FileCheck %s --check-prefix=LAST

lm.variable @x input : tensor<8x64xf32> init none
lm.variable @w parameter : tensor<64x64xf32> init normal(stddev = 0.1 : f64) {weight_decay}
lm.variable @w.grad gradient : tensor<64x64xf32> init zeros {parameter = "w"}
// 300 elements: the second half of a piece is padding.
lm.variable @v parameter : tensor<300xf32> init ones
lm.variable @v.grad gradient : tensor<300xf32> init zeros {parameter = "v"}

func.func private @layer(%x: tensor<8x64xf32>, %w: tensor<64x64xf32>) -> tensor<8x64xf32> {
  %y = lm.linear %x, %w : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}
func.func @micro() {
  %x = lm.load @x : tensor<8x64xf32>
  %w = lm.load @w : tensor<64x64xf32>
  %y = call @layer(%x, %w) {lm.layer = 0} : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  %dw = lm.matmul %y, %x : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<64x64xf32> {backward, transpose_a}
  lm.accumulate %dw, @w.grad : tensor<64x64xf32>
  %v = lm.load @v : tensor<300xf32>
  %dv = lm.add %v, %v : tensor<300xf32>
  lm.accumulate %dv, @v.grad : tensor<300xf32>
  return
}

// ONE:      module {
// ONE-NEXT:   dist.mesh @ranks(replicate = 1, shard = 1)
// ONE-NEXT:   lm.variable @x
// ONE:        lm.variable @w parameter

// WEIGHTS:      dist.mesh @ranks(replicate = 1, shard = 2)
// WEIGHTS:      lm.variable @unit.0 parameter : tensor<8x256xf32>
// WEIGHTS-SAME:   sharded = [#lm.sharded<"w", tensor<64x64xf32>, offset = 0
// WEIGHTS-SAME:   shards = 2
// WEIGHTS:      lm.variable @unit.0.grad gradient : tensor<8x256xf32>
// WEIGHTS-NOT:  lm.variable @w parameter
// WEIGHTS:      lm.variable @unit.1 parameter : tensor<1x256xf32>
// Vectors are not divided for the functions that read them.
// WEIGHTS:      lm.variable @unit.1.whole compute_copy : tensor<512xf32>
// WEIGHTS:      lm.variable @v.compute compute_copy : tensor<300xf32>
// WEIGHTS-SAME:   storage = @unit.1.whole, storage_offset = 0
// WEIGHTS:      func.func @micro
// WEIGHTS:        %[[PIECE:.*]] = lm.load @unit.0 : tensor<8x256xf32>
// WEIGHTS:        %[[ALL:.*]] = dist.all_gather %[[PIECE]] over @ranks shard : (tensor<8x256xf32>) -> tensor<16x256xf32>
// WEIGHTS:        %[[FLAT:.*]] = tensor.collapse_shape %[[ALL]]
// WEIGHTS:        %[[W:.*]] = tensor.expand_shape %[[FLAT]]
// WEIGHTS:        call @layer(%{{.*}}, %[[W]])
// WEIGHTS:        %[[DW:.*]] = lm.matmul
// WEIGHTS:        dist.reduce_scatter %{{.*}} over @ranks shard : (tensor<16x256xf32>) -> tensor<8x256xf32> {backward
// WEIGHTS:        lm.accumulate %{{.*}}, @unit.0.grad : tensor<8x256xf32>
// The padding is filled with zeros.
// WEIGHTS:        tensor.insert_slice %{{.*}} into %{{.*}}[0] [300] [1]
// WEIGHTS:        %[[ZEROS:.*]] = lm.load @dist.zeros : tensor<212xf32>
// WEIGHTS:        tensor.insert_slice %{{.*}} into %{{.*}}[300] [212] [1]
// WEIGHTS:        lm.accumulate %{{.*}}, @unit.1.grad : tensor<1x256xf32>

// WHOLE:      lm.variable @unit.0.whole compute_copy : tensor<4096xf32>
// WHOLE:      lm.variable @w.compute compute_copy : tensor<64x64xf32>
// WHOLE-NOT:  dist.all_gather
// WHOLE:      func.func @micro
// WHOLE:        lm.load @w.compute
// WHOLE:        dist.reduce_scatter

// NONE:      dist.mesh @ranks(replicate = 2, shard = 1)
// NONE-NOT:  unit.0
// NONE:      func.func @micro
// NONE:        %[[SUM:.*]] = dist.all_reduce %{{.*}} over @ranks replicate
// NONE:        lm.accumulate %{{.*}}, @w.grad : tensor<64x64xf32>
// NONE:        dist.all_reduce
// NONE:        lm.accumulate %{{.*}}, @v.grad : tensor<300xf32>

// HYBRID:      func.func @micro
// HYBRID:        %[[ROUNDED:.*]] = lm.cast %{{.*}} : (tensor<16x256xf32>) -> tensor<16x256xbf16>
// HYBRID:        %[[OWN:.*]] = dist.reduce_scatter %[[ROUNDED]] over @ranks shard
// HYBRID:        %[[SUM:.*]] = dist.all_reduce %[[OWN]] over @ranks replicate
// HYBRID:        %[[WIDE:.*]] = lm.cast %[[SUM]] : (tensor<8x256xbf16>) -> tensor<8x256xf32>
// HYBRID:        lm.accumulate %[[WIDE]], @unit.0.grad

// The largest gradient is that of the ranks along both axes, and the sum is one of 6 ranks.
// SCALED:      func.func @micro
// SCALED:        lm.max_abs %{{.*}} : (tensor<16x256xf32>) -> tensor<f32>
// SCALED:        dist.all_gather %{{.*}} over @ranks shard : (tensor<1xf32>) -> tensor<2xf32>
// SCALED:        dist.all_gather %{{.*}} over @ranks replicate : (tensor<2xf32>) -> tensor<6xf32>
// SCALED:        %[[MAX:.*]] = lm.max_abs %{{.*}} : (tensor<6xf32>) -> tensor<f32>
// SCALED:        %[[ROUNDED:.*]] = lm.scaled_cast %{{.*}}, %[[MAX]] over 6 : (tensor<16x256xf32>, tensor<f32>) -> tensor<16x256xf16>
// SCALED:        %[[OWN:.*]] = dist.reduce_scatter %[[ROUNDED]] over @ranks shard
// SCALED:        %[[SUM:.*]] = dist.all_reduce %[[OWN]] over @ranks replicate
// SCALED:        lm.scaled_cast %[[SUM]], %[[MAX]] over 6 : (tensor<8x256xf16>, tensor<f32>) -> tensor<8x256xf32>

// LAST:      dist.units = [{elements = 4096 : i64
// LAST:      lm.variable @w.grad.local gradient : tensor<64x64xf32>
// LAST:      func.func @micro
// LAST-NOT:    dist.
// LAST:        lm.accumulate %{{.*}}, @w.grad.local : tensor<64x64xf32>
