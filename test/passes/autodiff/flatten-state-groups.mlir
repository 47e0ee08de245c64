// lm-flatten-state leaves apart what one lm.adamw or one norm cannot treat alike.
// RUN: lmc-opt %s -split-input-file --lm-flatten-state | FileCheck %s

// Two learning rates are two storages.
// CHECK-DAG:   lm.variable @flat.0 parameter
// CHECK-DAG:   lm.variable @flat.1 parameter
// CHECK-LABEL: func.func @optimizer
// CHECK-DAG:     %[[A:.*]] = lm.load @run.lr
// CHECK-DAG:     %[[B:.*]] = lm.load @run.weight_decay
// CHECK:         lm.adamw {{.*}} lr %[[A]]
// CHECK:         lm.adamw {{.*}} lr %[[B]]
module {
  lm.variable @w parameter : tensor<9x8xf32> init ones
  lm.variable @w.moment1 moment1 : tensor<9x8xf32> init zeros {parameter = "w"}
  lm.variable @w.moment2 moment2 : tensor<9x8xf32> init zeros {parameter = "w"}
  lm.variable @w.grad gradient : tensor<9x8xf32> init zeros {parameter = "w"}
  lm.variable @g parameter : tensor<8xf32> init ones
  lm.variable @g.moment1 moment1 : tensor<8xf32> init zeros {parameter = "g"}
  lm.variable @g.moment2 moment2 : tensor<8xf32> init zeros {parameter = "g"}
  lm.variable @run.update_norm scalar : tensor<f32> init none
  lm.variable @run.param_norm scalar : tensor<f32> init none
  lm.variable @run.grad_norm scalar : tensor<f32> init none
  lm.variable @run.clip_grad scalar : tensor<f32> init none
  lm.variable @run.bias_correction2 scalar : tensor<f32> init none
  lm.variable @run.bias_correction1 scalar : tensor<f32> init none
  lm.variable @run.weight_decay scalar : tensor<f32> init none
  lm.variable @run.eps scalar : tensor<f32> init none
  lm.variable @run.beta2 scalar : tensor<f32> init none
  lm.variable @run.beta1 scalar : tensor<f32> init none
  lm.variable @run.lr scalar : tensor<f32> init none
  lm.variable @g.grad gradient : tensor<8xf32> init zeros {parameter = "g"}
  func.func @optimizer() {
    %0 = lm.load @w.grad : tensor<9x8xf32>
    %1 = lm.load @g.grad : tensor<8xf32>
    %2 = lm.global_norm %0, %1 : (tensor<9x8xf32>, tensor<8xf32>) -> tensor<f32>
    lm.store %2, @run.grad_norm : tensor<f32>
    %3 = lm.load @run.lr : tensor<f32>
    %4 = lm.load @run.beta1 : tensor<f32>
    %5 = lm.load @run.beta2 : tensor<f32>
    %6 = lm.load @run.eps : tensor<f32>
    %7 = lm.load @run.weight_decay : tensor<f32>
    %8 = lm.load @run.bias_correction1 : tensor<f32>
    %9 = lm.load @run.bias_correction2 : tensor<f32>
    %10 = lm.load @run.clip_grad : tensor<f32>
    %11 = lm.load @w : tensor<9x8xf32>
    %12 = lm.load @w.moment1 : tensor<9x8xf32>
    %13 = lm.load @w.moment2 : tensor<9x8xf32>
    %new_parameter, %new_moment1, %new_moment2, %update_sq, %param_sq = lm.adamw %11, %0, %12, %13 norm %2 lr %3 betas %4 %5 eps %6 bias_corrections %8 %9 clip_grad %10 : (tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>, tensor<9xf32>, tensor<9xf32>)
    lm.store %new_parameter, @w : tensor<9x8xf32>
    lm.store %new_moment1, @w.moment1 : tensor<9x8xf32>
    lm.store %new_moment2, @w.moment2 : tensor<9x8xf32>
    %14 = lm.load @g : tensor<8xf32>
    %15 = lm.load @g.moment1 : tensor<8xf32>
    %16 = lm.load @g.moment2 : tensor<8xf32>
    %new_parameter_0, %new_moment1_1, %new_moment2_2, %update_sq_3, %param_sq_4 = lm.adamw %14, %1, %15, %16 norm %2 lr %7 betas %4 %5 eps %6 bias_corrections %8 %9 clip_grad %10 : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<1xf32>, tensor<1xf32>)
    lm.store %new_parameter_0, @g : tensor<8xf32>
    lm.store %new_moment1_1, @g.moment1 : tensor<8xf32>
    lm.store %new_moment2_2, @g.moment2 : tensor<8xf32>
    %17 = lm.norm_of_parts %update_sq, %update_sq_3 : (tensor<9xf32>, tensor<1xf32>) -> tensor<f32>
    lm.store %17, @run.update_norm : tensor<f32>
    %18 = lm.norm_of_parts %param_sq, %param_sq_4 : (tensor<9xf32>, tensor<1xf32>) -> tensor<f32>
    lm.store %18, @run.param_norm : tensor<f32>
    return
  }
}

// -----

// A norm over a part of the gradients keeps the group apart.
// CHECK-LABEL: func.func @optimizer
// CHECK:         lm.global_norm %{{.*}} : (tensor<8xf32>) -> tensor<f32>
// CHECK:         lm.load @w :
// CHECK-COUNT-2: lm.adamw
// CHECK-NOT:     @flat
module {
  lm.variable @w parameter : tensor<9x8xf32> init ones
  lm.variable @w.moment1 moment1 : tensor<9x8xf32> init zeros {parameter = "w"}
  lm.variable @w.moment2 moment2 : tensor<9x8xf32> init zeros {parameter = "w"}
  lm.variable @w.grad gradient : tensor<9x8xf32> init zeros {parameter = "w"}
  lm.variable @g parameter : tensor<8xf32> init ones
  lm.variable @g.moment1 moment1 : tensor<8xf32> init zeros {parameter = "g"}
  lm.variable @g.moment2 moment2 : tensor<8xf32> init zeros {parameter = "g"}
  lm.variable @run.update_norm scalar : tensor<f32> init none
  lm.variable @run.param_norm scalar : tensor<f32> init none
  lm.variable @run.grad_norm scalar : tensor<f32> init none
  lm.variable @run.clip_grad scalar : tensor<f32> init none
  lm.variable @run.bias_correction2 scalar : tensor<f32> init none
  lm.variable @run.bias_correction1 scalar : tensor<f32> init none
  lm.variable @run.weight_decay scalar : tensor<f32> init none
  lm.variable @run.eps scalar : tensor<f32> init none
  lm.variable @run.beta2 scalar : tensor<f32> init none
  lm.variable @run.beta1 scalar : tensor<f32> init none
  lm.variable @run.lr scalar : tensor<f32> init none
  lm.variable @g.grad gradient : tensor<8xf32> init zeros {parameter = "g"}
  func.func @optimizer() {
    %0 = lm.load @w.grad : tensor<9x8xf32>
    %1 = lm.load @g.grad : tensor<8xf32>
    %2 = lm.global_norm %1 : (tensor<8xf32>) -> tensor<f32>
    lm.store %2, @run.grad_norm : tensor<f32>
    %3 = lm.load @run.lr : tensor<f32>
    %4 = lm.load @run.beta1 : tensor<f32>
    %5 = lm.load @run.beta2 : tensor<f32>
    %6 = lm.load @run.eps : tensor<f32>
    %7 = lm.load @run.weight_decay : tensor<f32>
    %8 = lm.load @run.bias_correction1 : tensor<f32>
    %9 = lm.load @run.bias_correction2 : tensor<f32>
    %10 = lm.load @run.clip_grad : tensor<f32>
    %11 = lm.load @w : tensor<9x8xf32>
    %12 = lm.load @w.moment1 : tensor<9x8xf32>
    %13 = lm.load @w.moment2 : tensor<9x8xf32>
    %new_parameter, %new_moment1, %new_moment2, %update_sq, %param_sq = lm.adamw %11, %0, %12, %13 norm %2 lr %3 betas %4 %5 eps %6 bias_corrections %8 %9 clip_grad %10 : (tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<9x8xf32>, tensor<9x8xf32>, tensor<9x8xf32>, tensor<9xf32>, tensor<9xf32>)
    lm.store %new_parameter, @w : tensor<9x8xf32>
    lm.store %new_moment1, @w.moment1 : tensor<9x8xf32>
    lm.store %new_moment2, @w.moment2 : tensor<9x8xf32>
    %14 = lm.load @g : tensor<8xf32>
    %15 = lm.load @g.moment1 : tensor<8xf32>
    %16 = lm.load @g.moment2 : tensor<8xf32>
    %new_parameter_0, %new_moment1_1, %new_moment2_2, %update_sq_3, %param_sq_4 = lm.adamw %14, %1, %15, %16 norm %2 lr %3 betas %4 %5 eps %6 bias_corrections %8 %9 clip_grad %10 : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<1xf32>, tensor<1xf32>)
    lm.store %new_parameter_0, @g : tensor<8xf32>
    lm.store %new_moment1_1, @g.moment1 : tensor<8xf32>
    lm.store %new_moment2_2, @g.moment2 : tensor<8xf32>
    %17 = lm.norm_of_parts %update_sq, %update_sq_3 : (tensor<9xf32>, tensor<1xf32>) -> tensor<f32>
    lm.store %17, @run.update_norm : tensor<f32>
    %18 = lm.norm_of_parts %param_sq, %param_sq_4 : (tensor<9xf32>, tensor<1xf32>) -> tensor<f32>
    lm.store %18, @run.param_norm : tensor<f32>
    return
  }
}
