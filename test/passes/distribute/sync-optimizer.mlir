// dist-sync-optimizer joins norms, losses and new weights, and makes @refresh.
// RUN: lmc-opt %s --dist-sync-optimizer | FileCheck %s

module {
  dist.mesh @ranks(replicate = 2, shard = 2)
  lm.variable @unit.0 parameter : tensor<2x256xf32> init none
      {shards = 2 : i64, sharded = [#lm.sharded<"w", tensor<32x32xf32>, offset = 0, init = zeros>]}
  lm.variable @unit.0.grad gradient : tensor<2x256xf32> init zeros {parameter = "unit.0"}
  lm.variable @unit.0.moment1 moment1 : tensor<2x256xf32> init zeros {parameter = "unit.0"}
  lm.variable @unit.0.moment1_scale moment1_scale : tensor<2xf32> init zeros {parameter = "unit.0"}
  lm.variable @unit.0.whole compute_copy : tensor<1024xbf16> init none {anonymous}
  lm.variable @run.loss scalar : tensor<f32> init none
  lm.variable @run.grad_norm scalar : tensor<f32> init none
  lm.variable @run.eval_loss scalar : tensor<f32> init none
  lm.variable @run.router input : tensor<256xf32> init zeros {anonymous}
  lm.variable @run.limit scalar : tensor<f32> init none
  func.func @eval() {
    %loss = lm.load @run.loss : tensor<f32>
    lm.store %loss, @run.eval_loss : tensor<f32>
    return
  }
  func.func @optimizer() {
    %g = lm.load @unit.0.grad : tensor<2x256xf32>
    %norm = lm.global_norm %g : (tensor<2x256xf32>) -> tensor<f32>
    lm.store %norm, @run.grad_norm : tensor<f32>
    %loss = lm.load @run.loss : tensor<f32>
    %limit = lm.load @run.limit : tensor<f32>
    %guarded = lm.guard_norm %norm, %loss limits %limit, %limit : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
    %p = lm.load @unit.0 : tensor<2x256xf32>
    %scaled = lm.scale %g, %guarded : (tensor<2x256xf32>, tensor<f32>) -> tensor<2x256xf32>
    %new = lm.add %p, %scaled : tensor<2x256xf32>
    lm.store %new, @unit.0 : tensor<2x256xf32>
    return
  }
}

// The state has the names of the tensors in it.
// CHECK: lm.variable @unit.0.moment1 {{.*}}#lm.sharded<"w.moment1", tensor<32x32xf32>, offset = 0
// CHECK: lm.variable @unit.0.moment1_scale {{.*}}#lm.sharded<"w.moment1_scale", tensor<4xf32>, offset = 0

// CHECK:      func.func @eval
// CHECK:        dist.all_reduce %{{.*}} over @ranks shard
// CHECK:        dist.all_reduce %{{.*}} over @ranks replicate
// CHECK:        lm.store %{{.*}}, @run.eval_loss

// CHECK:      func.func @optimizer
// CHECK:        %[[OWN:.*]] = lm.global_norm
// CHECK:        %[[ONE:.*]] = tensor.expand_shape %[[OWN]]
// CHECK:        %[[ALL:.*]] = dist.all_gather %[[ONE]] over @ranks shard : (tensor<1xf32>) -> tensor<2xf32>
// CHECK:        %[[NORM:.*]] = lm.global_norm %[[ALL]]
// CHECK:        lm.store %[[NORM]], @run.grad_norm
// Limits are compared with the loss of all ranks.
// CHECK:        lm.load @run.loss
// CHECK-COUNT-2: dist.all_reduce
// CHECK:        %[[LOSS:.*]] = tensor.collapse_shape %{{.*}} : tensor<1xf32> into tensor<f32>
// CHECK:        lm.store %[[LOSS]], @run.loss
// CHECK-NOT:    lm.load @run.loss
// CHECK:        lm.guard_norm %[[NORM]], %[[LOSS]] limits
// CHECK:        %[[NEW:.*]] = lm.add
// What routers did is summed over all ranks by one collective for each axis.
// CHECK:        %[[ROUTERS:.*]] = lm.load @run.router
// CHECK-NEXT:   %[[SOME:.*]] = dist.all_reduce %[[ROUTERS]] over @ranks shard
// CHECK-NEXT:   %[[SUM:.*]] = dist.all_reduce %[[SOME]] over @ranks replicate
// CHECK-NEXT:   lm.store %[[SUM]], @run.router
// CHECK:        %[[ROUNDED:.*]] = lm.cast %[[NEW]] : (tensor<2x256xf32>) -> tensor<2x256xbf16>
// CHECK:        dist.all_gather %[[ROUNDED]] over @ranks shard
// CHECK:        lm.store %{{.*}}, @unit.0.whole : tensor<1024xbf16>

// CHECK:      func.func @refresh
// CHECK:        %[[P:.*]] = lm.load @unit.0
// CHECK:        %[[COPY:.*]] = lm.cast %[[P]]
// CHECK:        dist.all_gather %[[COPY]]
// CHECK:        lm.store %{{.*}}, @unit.0.whole
