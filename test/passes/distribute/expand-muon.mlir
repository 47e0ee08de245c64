// dist-expand-muon: the parts of lm.muon, and what ranks exchange between them.
// RUN: split-file %s %t
// RUN: lmc-opt %t/one.mlir --dist-expand-muon | FileCheck %s --check-prefix=ONE
// RUN: lmc-opt %t/two.mlir --dist-expand-muon | FileCheck %s --check-prefix=ALL
// RUN: lmc-opt %t/two.mlir --dist-expand-muon=owners=yes | FileCheck %s --check-prefix=OWNERS
// RUN: lmc-opt %t/block.mlir --dist-expand-muon | FileCheck %s --check-prefix=BLOCK
// RUN: not lmc-opt %t/none.mlir --dist-expand-muon 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not lmc-opt %t/two.mlir --dist-expand-muon=owners=some 2>&1 | FileCheck %s --check-prefix=SOME

// Two matrices of one shape that lie next to each other are one stack.
// ONE:      %[[M:.*]], %[[D:.*]] = lm.muon_direction %[[G:.*]], %{{.*}} norm %[[N:.*]] momentum %{{.*}} clip_grad %{{.*}} -> (tensor<4x8xf32>, tensor<4x8xbf16>) {nesterov = false}
// ONE:      %[[X:.*]] = tensor.expand_shape %{{.*}} : tensor<32xbf16> into tensor<4x8xbf16>
// ONE-NEXT: %[[O:.*]] = lm.orthogonalize %[[X]] rows 2 eps %{{.*}} -> tensor<4x8xbf16> {ns_steps = 2 : i64}
// ONE-NOT:  lm.orthogonalize
// ONE:      %[[S:.*]] = lm.scale_matrices %{{.*}}, %{{.*}} : (tensor<2x8xbf16>, tensor<2x8xbf16>) -> tensor<4x8xf32> {matrices = [#lm.matrix<offset = 0, rows = 2, columns = 8, fan_in = 8>, #lm.matrix<offset = 16, rows = 2, columns = 8, fan_in = 6>]}
// ONE-NEXT: %[[P:.*]], %{{.*}}, %{{.*}}, %[[C:.*]] = lm.muon_update %[[G]], %[[S]] norm %[[N]] lr %{{.*}} weight_decay %{{.*}} -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x8xbf16>)
// ONE-NEXT: lm.store %[[P]], @w
// ONE-NEXT: lm.store %[[M]], @w.moment1
// ONE-NEXT: lm.store %[[C]], @w.compute

// Each rank has half of a vector of 1024 elements, in which two matrices are, and takes its rows of the result.
// ALL:      lm.variable @run.shard_rank scalar : tensor<f32> init none step_value shard_rank
// ALL:      %{{.*}}, %[[D:.*]] = lm.muon_direction {{.*}} -> (tensor<2x256xf32>, tensor<2x256xf32>)
// ALL-NEXT: %[[ALL:.*]] = dist.all_gather %[[D]] over @ranks shard : (tensor<2x256xf32>) -> tensor<4x256xf32>
// ALL:      lm.orthogonalize %{{.*}} rows 16 {{.*}} -> tensor<16x16xf32>
// ALL:      lm.orthogonalize %{{.*}} rows 32 {{.*}} -> tensor<32x16xf32>
// ALL:      %[[S:.*]] = lm.scale_matrices {{.*}} -> tensor<4x256xf32>
// ALL-NEXT: %[[R:.*]] = lm.load @run.shard_rank
// ALL-NEXT: %[[OWN:.*]] = lm.own_rows %[[S]] of %[[R]] : (tensor<4x256xf32>, tensor<f32>) -> tensor<2x256xf32>
// ALL-NEXT: lm.muon_update %{{.*}}, %[[OWN]] norm
// ALL-NEXT: lm.store
// ALL:      lm.muon_direction

// Two steps have two matrices of each shape: one for each rank.
// OWNERS:         lm.muon_direction
// OWNERS-NEXT:    dist.all_gather
// OWNERS:         lm.muon_direction
// OWNERS-NEXT:    dist.all_gather
// OWNERS-COUNT-2: tensor.insert_slice {{.*}} : tensor<256xf32> into tensor<512xf32>
// OWNERS:         %[[OWN:.*]] = lm.own_rows %{{.*}} : (tensor<32x16xf32>, tensor<f32>) -> tensor<16x16xf32>
// OWNERS-NEXT:    %[[O:.*]] = lm.orthogonalize %[[OWN]] rows 16 {{.*}} -> tensor<16x16xf32>
// OWNERS-NEXT:    %[[BOTH:.*]] = dist.all_gather %[[O]] over @ranks shard : (tensor<16x16xf32>) -> tensor<32x16xf32>
// OWNERS:         lm.orthogonalize %{{.*}} rows 32 {{.*}} -> tensor<32x16xf32>
// OWNERS-NOT:     lm.orthogonalize
// OWNERS:         lm.scale_matrices
// OWNERS:         %[[A:.*]], %{{.*}}, %{{.*}} = lm.muon_update
// OWNERS-NEXT:    lm.store %[[A]], @unit.0
// OWNERS:         %[[B:.*]], %{{.*}}, %{{.*}} = lm.muon_update
// OWNERS-NEXT:    lm.store %[[B]], @unit.1

// Two matrices side by side are copied to a stack.
// BLOCK:      %[[P0:.*]]:2 = lm.split %{{.*}} : (tensor<4x8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>)
// BLOCK-NEXT: lm.cast %[[P0]]#0 : (tensor<4x4xf32>) -> tensor<4x4xf32>
// BLOCK:      %[[P1:.*]]:2 = lm.split %{{.*}} : (tensor<4x8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>)
// BLOCK-NEXT: lm.cast %[[P1]]#1 : (tensor<4x4xf32>) -> tensor<4x4xf32>
// BLOCK:      lm.orthogonalize %{{.*}} rows 4 {{.*}} -> tensor<8x4xf32>
// BLOCK:      lm.scale_matrices %{{.*}}, %{{.*}} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x8xf32> {matrices = [#lm.matrix<offset = 0, rows = 4, columns = 4, fan_in = 4, pitch = 8, transposed = true>, #lm.matrix<offset = 0, rows = 4, columns = 4, fan_in = 4, column = 4, pitch = 8, transposed = true>]}

// NONE: has no @optimizer or no mesh; run lm-insert-optimizer and dist-shard-state first
// SOME: owners must be auto, yes or no, not 'some'

//--- one.mlir
dist.mesh @ranks(replicate = 2, shard = 1)
lm.variable @w parameter : tensor<4x8xf32> init ones {hidden}
lm.variable @w.moment1 moment1 : tensor<4x8xf32> init zeros {parameter = "w"}
lm.variable @w.compute compute_copy : tensor<4x8xbf16> init copy_of(source = "w") {parameter = "w"}
lm.variable @s scalar : tensor<f32> init none
func.func @optimizer() {
  %p = lm.load @w : tensor<4x8xf32>
  %m = lm.load @w.moment1 : tensor<4x8xf32>
  %s = lm.load @s : tensor<f32>
  %0:5 = lm.muon %p, %p, %m norm %s lr %s momentum %s eps %s weight_decay %s clip_grad %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x8xbf16>) {matrices = [#lm.matrix<offset = 0, rows = 2, columns = 8, fan_in = 8>, #lm.matrix<offset = 16, rows = 2, columns = 8, fan_in = 6>], ns_steps = 2, nesterov = false, ns_dtype = bf16}
  lm.store %0#0, @w : tensor<4x8xf32>
  lm.store %0#1, @w.moment1 : tensor<4x8xf32>
  lm.store %0#4, @w.compute : tensor<4x8xbf16>
  return
}
//--- two.mlir
dist.mesh @ranks(replicate = 1, shard = 2)
lm.variable @unit.0 parameter : tensor<2x256xf32> init none {hidden, shards = 2 : i64, sharded = []}
lm.variable @unit.1 parameter : tensor<2x256xf32> init none {hidden, shards = 2 : i64, sharded = []}
lm.variable @s scalar : tensor<f32> init none
func.func @optimizer() {
  %s = lm.load @s : tensor<f32>
  %p = lm.load @unit.0 : tensor<2x256xf32>
  %0:4 = lm.muon %p, %p, %p norm %s lr %s momentum %s eps %s clip_grad %s : (tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<2x256xf32>, tensor<2x256xf32>, tensor<2xf32>, tensor<2xf32>) {matrices = [#lm.matrix<offset = 0, rows = 16, columns = 16, fan_in = 16>, #lm.matrix<offset = 256, rows = 32, columns = 16, fan_in = 16>]}
  lm.store %0#0, @unit.0 : tensor<2x256xf32>
  %q = lm.load @unit.1 : tensor<2x256xf32>
  %1:4 = lm.muon %q, %q, %q norm %s lr %s momentum %s eps %s clip_grad %s : (tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<2x256xf32>, tensor<2x256xf32>, tensor<2xf32>, tensor<2xf32>) {matrices = [#lm.matrix<offset = 0, rows = 16, columns = 16, fan_in = 16>, #lm.matrix<offset = 256, rows = 32, columns = 16, fan_in = 16>]}
  lm.store %1#0, @unit.1 : tensor<2x256xf32>
  return
}
//--- block.mlir
dist.mesh @ranks(replicate = 1, shard = 1)
lm.variable @w parameter : tensor<4x8xf32> init ones {hidden, columns = array<i64: 4, 4>}
lm.variable @s scalar : tensor<f32> init none
func.func @optimizer() {
  %s = lm.load @s : tensor<f32>
  %p = lm.load @w : tensor<4x8xf32>
  %0:4 = lm.muon %p, %p, %p norm %s lr %s momentum %s eps %s clip_grad %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>) {matrices = [#lm.matrix<offset = 0, rows = 4, columns = 4, fan_in = 4, pitch = 8, transposed = true>, #lm.matrix<offset = 0, rows = 4, columns = 4, fan_in = 4, column = 4, pitch = 8, transposed = true>]}
  lm.store %0#0, @w : tensor<4x8xf32>
  return
}
//--- none.mlir
func.func @optimizer() {
  return
}
