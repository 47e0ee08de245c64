// Each layer has its option; layers and micro-steps with the same option share its halves.
// RUN: sed 's/^module {/module attributes {lm.recompute_choice = array<i64: 0, 2, 0>} {/' %s | lmc-opt --lm-autodiff --lm-accumulate-gradients=steps=2 --cse --lm-analyze-recompute --lm-apply-recompute | FileCheck %s --check-prefixes=CHECK,CHOICE
// RUN: lmc-opt %s --lm-autodiff --lm-accumulate-gradients=steps=2 --cse "--lm-apply-recompute=mode=full stride=2" | FileCheck %s --check-prefixes=CHECK,STRIDE

// CHOICE: lm.recompute = "auto"
// STRIDE: lm.recompute = "full"

// CHECK-DAG: func.func private @layer.forward.none(
// CHECK-DAG: func.func private @layer.forward.full(
// CHECK-DAG: func.func private @layer.backward.none(
// CHECK-DAG: func.func private @layer.backward.full(
// CHECK-DAG: func.func private @layer.backward.accumulate.none(
// CHECK-DAG: func.func private @layer.backward.accumulate.full(
// CHECK-NOT: func.func private

// CHECK-LABEL: func.func @micro_first
// CHOICE:      call @layer.forward.none(
// CHOICE:      call @layer.forward.full(
// CHOICE:      call @layer.forward.none(
// CHOICE:      call @layer.backward.none(
// CHOICE:      call @layer.backward.full(
// CHOICE:      call @layer.backward.none(
// STRIDE:      call @layer.forward.full(
// STRIDE:      call @layer.forward.none(
// STRIDE:      call @layer.forward.full(
// STRIDE:      call @layer.backward.full(
// STRIDE:      call @layer.backward.none(
// STRIDE:      call @layer.backward.full(
// CHECK-LABEL: func.func @micro_last
// CHOICE:      call @layer.forward.none(
// CHOICE:      call @layer.forward.full(
// CHOICE:      call @layer.forward.none(
// CHOICE:      call @layer.backward.accumulate.none(
// CHOICE:      call @layer.backward.accumulate.full(
// CHOICE:      call @layer.backward.accumulate.none(
// STRIDE:      call @layer.backward.accumulate.full(
// STRIDE:      call @layer.backward.accumulate.none(
// STRIDE:      call @layer.backward.accumulate.full(

module {
lm.variable @x input : tensor<4x8xf32> init none
lm.variable @targets input : tensor<4xi32> init none
lm.variable @w0 parameter : tensor<8x8xf32> init zeros
lm.variable @w1 parameter : tensor<8x8xf32> init zeros
lm.variable @w2 parameter : tensor<8x8xf32> init zeros
lm.variable @head parameter : tensor<8x8xf32> init zeros

func.func private @layer(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %g = lm.linear %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %a = lm.swiglu %g, %x : tensor<4x8xf32>
  %d = lm.linear %a, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %y = lm.add %x, %d : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<4x8xf32>
  %targets = lm.load @targets : tensor<4xi32>
  %w0 = lm.load @w0 : tensor<8x8xf32>
  %w1 = lm.load @w1 : tensor<8x8xf32>
  %w2 = lm.load @w2 : tensor<8x8xf32>
  %head = lm.load @head : tensor<8x8xf32>
  %y0 = call @layer(%x, %w0) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %y1 = call @layer(%y0, %w1) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %y2 = call @layer(%y1, %w2) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %loss = lm.linear_cross_entropy %y2, %head, %targets chunk 4 : (tensor<4x8xf32>, tensor<8x8xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}
}
