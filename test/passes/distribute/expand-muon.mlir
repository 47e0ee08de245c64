// dist-expand-muon: the parts of lm.muon, and what ranks exchange between them.
// RUN: split-file %s %t
// RUN: lmc-opt %t/one.mlir --dist-expand-muon | FileCheck %s --check-prefix=ONE
// RUN: lmc-opt %t/two.mlir --dist-expand-muon | FileCheck %s --check-prefix=TWO
// RUN: not lmc-opt %t/none.mlir --dist-expand-muon 2>&1 | FileCheck %s --check-prefix=NONE

// ONE:      %[[M:.*]], %[[D:.*]] = lm.muon_direction %[[G:.*]], %{{.*}} norm %[[N:.*]] momentum %{{.*}} clip_grad %{{.*}} -> (tensor<4x8xf32>, tensor<4x8xbf16>) {nesterov = false}
// ONE-NEXT: %[[O:.*]] = lm.orthogonalize %[[D]] eps %{{.*}} -> tensor<4x8xf32> {matrices = [#lm.matrix<offset = 0, rows = 4, columns = 8, fan_in = 8>], ns_steps = 2 : i64}
// ONE-NEXT: %[[P:.*]], %{{.*}}, %{{.*}}, %[[C:.*]] = lm.muon_update %[[G]], %[[O]] norm %[[N]] lr %{{.*}} weight_decay %{{.*}} -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x8xbf16>)
// ONE-NEXT: lm.store %[[P]], @w
// ONE-NEXT: lm.store %[[M]], @w.moment1
// ONE-NEXT: lm.store %[[C]], @w.compute

// Each rank has half of a vector of 1024 elements, in which two matrices are.
// TWO:      lm.variable @run.shard_rank scalar : tensor<f32> init none step_value shard_rank
// TWO:      %{{.*}}, %[[D:.*]] = lm.muon_direction {{.*}} -> (tensor<2x256xf32>, tensor<2x256xf32>)
// TWO-NEXT: %[[ALL:.*]] = dist.all_gather %[[D]] over @ranks shard : (tensor<2x256xf32>) -> tensor<4x256xf32>
// TWO-NEXT: %[[R:.*]] = lm.load @run.shard_rank
// TWO-NEXT: %[[O:.*]] = lm.orthogonalize %[[ALL]] {{.*}} -> tensor<4x256xf32> {matrices = [#lm.matrix<offset = 0, rows = 16, columns = 16, fan_in = 16>, #lm.matrix<offset = 256, rows = 32, columns = 16, fan_in = 16>]}
// TWO-NEXT: %[[OWN:.*]] = lm.own_rows %[[O]] of %[[R]] : (tensor<4x256xf32>, tensor<f32>) -> tensor<2x256xf32>
// TWO-NEXT: lm.muon_update %{{.*}}, %[[OWN]] norm

// NONE: has no @optimizer or no mesh; run lm-insert-optimizer and dist-shard-state first

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
  %0:5 = lm.muon %p, %p, %m norm %s lr %s momentum %s eps %s weight_decay %s clip_grad %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x8xbf16>) {matrices = [#lm.matrix<offset = 0, rows = 4, columns = 8, fan_in = 8>], ns_steps = 2, nesterov = false, ns_dtype = bf16}
  lm.store %0#0, @w : tensor<4x8xf32>
  lm.store %0#1, @w.moment1 : tensor<4x8xf32>
  lm.store %0#4, @w.compute : tensor<4x8xbf16>
  return
}
//--- two.mlir
dist.mesh @ranks(replicate = 1, shard = 2)
lm.variable @unit.0 parameter : tensor<2x256xf32> init none {hidden, shards = 2 : i64, sharded = []}
lm.variable @s scalar : tensor<f32> init none
func.func @optimizer() {
  %p = lm.load @unit.0 : tensor<2x256xf32>
  %s = lm.load @s : tensor<f32>
  %0:4 = lm.muon %p, %p, %p norm %s lr %s momentum %s eps %s clip_grad %s : (tensor<2x256xf32>, tensor<2x256xf32>, tensor<2x256xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<2x256xf32>, tensor<2x256xf32>, tensor<2xf32>, tensor<2xf32>) {matrices = [#lm.matrix<offset = 0, rows = 16, columns = 16, fan_in = 16>, #lm.matrix<offset = 256, rows = 32, columns = 16, fan_in = 16>]}
  lm.store %0#0, @unit.0 : tensor<2x256xf32>
  return
}
//--- none.mlir
func.func @optimizer() {
  return
}
