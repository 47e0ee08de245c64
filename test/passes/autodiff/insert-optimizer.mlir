// lm-insert-optimizer declares moments and scalars and makes @optimizer: the norm of all gradients, then AdamW for every parameter that has one.
// RUN: lmc-opt %s --lm-insert-optimizer | FileCheck %s
// RUN: lmc-opt %s --lm-insert-optimizer | FileCheck %s --check-prefix=STATE

// STATE-DAG: lm.variable @w.moment1 moment1 : tensor<4x8xf32> init zeros {parameter = "w"}
// STATE-DAG: lm.variable @w.moment2 moment2 : tensor<4x8xf32> init zeros {parameter = "w"}
// STATE-DAG: lm.variable @g.moment1 moment1 : tensor<8xf32> init zeros {parameter = "g"}
// STATE-DAG: lm.variable @g.moment2 moment2 : tensor<8xf32> init zeros {parameter = "g"}
// STATE-DAG: lm.variable @run.lr scalar : tensor<f32> init none step_value learning_rate
// STATE-DAG: lm.variable @run.beta1 scalar : tensor<f32> init none setting "optimizer.beta1"
// STATE-DAG: lm.variable @run.beta2 scalar : tensor<f32> init none setting "optimizer.beta2"
// STATE-DAG: lm.variable @run.eps scalar : tensor<f32> init none setting "optimizer.eps"
// STATE-DAG: lm.variable @run.weight_decay scalar : tensor<f32> init none setting "optimizer.weight_decay"
// STATE-DAG: lm.variable @run.bias_correction1 scalar : tensor<f32> init none step_value bias_correction1
// STATE-DAG: lm.variable @run.bias_correction2 scalar : tensor<f32> init none step_value bias_correction2
// STATE-DAG: lm.variable @run.clip_grad scalar : tensor<f32> init none setting "optimizer.clip_grad"
// STATE-DAG: lm.variable @run.grad_norm scalar : tensor<f32> init none
// STATE-DAG: lm.variable @run.param_norm scalar : tensor<f32> init none
// STATE-DAG: lm.variable @run.update_norm scalar : tensor<f32> init none
// STATE-DAG: lm.variable @run.norm_limit scalar : tensor<f32> init none step_value norm_limit
// STATE-DAG: lm.variable @run.loss_limit scalar : tensor<f32> init none step_value loss_limit
// STATE-NOT: @frozen.moment
// STATE:     func.func @optimizer

// CHECK-LABEL: func.func @optimizer() {
// CHECK-NEXT:    %[[DW:.*]] = lm.load @w.grad
// CHECK-NEXT:    %[[DG:.*]] = lm.load @g.grad
// CHECK-NEXT:    %[[NORM:.*]] = lm.global_norm %[[DW]], %[[DG]] : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<f32>
// CHECK-NEXT:    lm.store %[[NORM]], @run.grad_norm

// The steps read the norm as the limits of the step leave it.
// CHECK-DAG:     %[[LOSS:.*]] = lm.load @run.loss :
// CHECK-DAG:     %[[NORMLIMIT:.*]] = lm.load @run.norm_limit
// CHECK-DAG:     %[[LOSSLIMIT:.*]] = lm.load @run.loss_limit
// CHECK:         %[[GUARDED:.*]] = lm.guard_norm %[[NORM]], %[[LOSS]] limits %[[NORMLIMIT]], %[[LOSSLIMIT]] :
// CHECK-DAG:     %[[LR:.*]] = lm.load @run.lr
// CHECK-DAG:     %[[B1:.*]] = lm.load @run.beta1
// CHECK-DAG:     %[[B2:.*]] = lm.load @run.beta2
// CHECK-DAG:     %[[EPS:.*]] = lm.load @run.eps
// CHECK-DAG:     %[[DECAY:.*]] = lm.load @run.weight_decay
// CHECK-DAG:     %[[C1:.*]] = lm.load @run.bias_correction1
// CHECK-DAG:     %[[C2:.*]] = lm.load @run.bias_correction2
// CHECK-DAG:     %[[CLIP:.*]] = lm.load @run.clip_grad
// CHECK-DAG:     %[[W:.*]] = lm.load @w :
// CHECK-DAG:     %[[M:.*]] = lm.load @w.moment1
// CHECK-DAG:     %[[V:.*]] = lm.load @w.moment2

// A matrix decays, and has a copy in the compute dtype.
// CHECK:         %[[NEWW:[^ ]*]], %[[NEWM:[^ ]*]], %[[NEWV:[^ ]*]], %[[WUPDATE:[^ ]*]], %[[WSQ:[^ ]*]], %[[COPY:[^ ]*]] = lm.adamw
// CHECK-SAME:      %[[W]], %[[DW]], %[[M]], %[[V]] norm %[[GUARDED]] lr %[[LR]] betas %[[B1]] %[[B2]] eps %[[EPS]] weight_decay %[[DECAY]] bias_corrections %[[C1]] %[[C2]] clip_grad %[[CLIP]]
// CHECK-SAME:      -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x8xbf16>)
// CHECK-NEXT:    lm.store %[[NEWW]], @w :
// CHECK-NEXT:    lm.store %[[NEWM]], @w.moment1
// CHECK-NEXT:    lm.store %[[NEWV]], @w.moment2
// CHECK-NEXT:    lm.store %[[COPY]], @w.compute

// A vector is one row; this one has neither decay nor copy.
// CHECK-DAG:     %[[G:.*]] = lm.load @g :
// CHECK-DAG:     %[[GM:.*]] = lm.load @g.moment1
// CHECK-DAG:     %[[GV:.*]] = lm.load @g.moment2
// CHECK:         %[[NEWG:[^ ]*]], %[[NEWGM:[^ ]*]], %[[NEWGV:[^ ]*]], %[[GUPDATE:[^ ]*]], %[[GSQ:[^ ]*]] = lm.adamw
// CHECK-SAME:      %[[G]], %[[DG]], %[[GM]], %[[GV]] norm %[[GUARDED]] lr %[[LR]] betas %[[B1]] %[[B2]] eps %[[EPS]] bias_corrections %[[C1]] %[[C2]] clip_grad %[[CLIP]]
// CHECK-SAME:      -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<1xf32>, tensor<1xf32>)
// CHECK-NEXT:    lm.store %[[NEWG]], @g :
// CHECK-NEXT:    lm.store %[[NEWGM]], @g.moment1
// CHECK-NEXT:    lm.store %[[NEWGV]], @g.moment2

// CHECK-NEXT:    %[[UPDATE:.*]] = lm.norm_of_parts %[[WUPDATE]], %[[GUPDATE]]
// CHECK-NEXT:    lm.store %[[UPDATE]], @run.update_norm
// CHECK-NEXT:    %[[PARAM:.*]] = lm.norm_of_parts %[[WSQ]], %[[GSQ]]
// CHECK-NEXT:    lm.store %[[PARAM]], @run.param_norm
// CHECK-NEXT:    return

// A parameter without a gradient is left alone.
// CHECK-NOT:   @frozen
lm.variable @w parameter : tensor<4x8xf32> init zeros {weight_decay}
lm.variable @w.grad gradient : tensor<4x8xf32> init zeros {parameter = "w"}
lm.variable @w.compute compute_copy : tensor<4x8xbf16> init copy_of(source = "w") {parameter = "w"}
lm.variable @g parameter : tensor<8xf32> init ones
lm.variable @g.grad gradient : tensor<8xf32> init zeros {parameter = "g"}
lm.variable @frozen parameter : tensor<8xf32> init ones
lm.variable @run.loss scalar : tensor<f32> init none
