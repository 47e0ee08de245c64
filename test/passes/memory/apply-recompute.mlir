// What a mode drops is no longer returned by the forward half; the backward half makes it again.
// RUN: lmc-opt %s --lm-apply-recompute=mode=keep-all | FileCheck %s --check-prefix=KEEP
// RUN: lmc-opt %s --lm-apply-recompute=mode=none | FileCheck %s --check-prefixes=CHECK,NONE -DMODE=none
// RUN: lmc-opt %s --lm-apply-recompute=mode=activation | FileCheck %s --check-prefixes=CHECK,NONE -DMODE=activation
// RUN: lmc-opt %s --lm-apply-recompute=mode=full | FileCheck %s --check-prefixes=CHECK,FULL -DMODE=full
// RUN: lmc-opt %s --lm-apply-recompute=mode=block | FileCheck %s --check-prefixes=CHECK,FULL -DMODE=block
// RUN: lmc-opt %s --lm-analyze-recompute --lm-apply-recompute=mode=full | FileCheck %s --check-prefixes=CHECK,FULL -DMODE=full

lm.variable @x input : tensor<4x8xf32> init none
lm.variable @w parameter : tensor<8x8xf32> init zeros

func.func private @layer(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %g = lm.linear %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %u = lm.linear %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %a = lm.swiglu %g, %u : tensor<4x8xf32>
  %y = lm.linear %a, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

func.func private @layer.forward(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %g = lm.linear %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %u = lm.linear %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %a = lm.swiglu %g, %u : tensor<4x8xf32>
  %y = lm.linear %a, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %y, %a, %g, %u : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

func.func private @layer.backward(%dy: tensor<4x8xf32>, %a: tensor<4x8xf32>, %g: tensor<4x8xf32>,
                                  %u: tensor<4x8xf32>) -> tensor<8x8xf32> {
  %dw = lm.matmul %dy, %a : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32> {transpose_a}
  %dg, %du = lm.swiglu_grad %dy, %g, %u : tensor<4x8xf32>
  %dw1 = lm.matmul %dg, %du acc %dw : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> {transpose_a}
  return %dw1 : tensor<8x8xf32>
}

// KEEP: module attributes {lm.recompute = "keep-all"}
// KEEP: func.func private @layer.backward(
// KEEP-NEXT: lm.matmul
// KEEP-NEXT: lm.swiglu_grad
// KEEP-LABEL: func.func @micro_first
// KEEP: call @layer.forward(
// KEEP: call @layer.backward(

// CHECK: module attributes {lm.recompute = "[[MODE]]"

// NONE: func.func private @layer.forward.[[MODE]](
// NONE-SAME: -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
// NONE: func.func private @layer.backward.[[MODE]](%[[DY:.*]]: tensor<4x8xf32>, %[[G:.*]]: tensor<4x8xf32>, %[[U:.*]]: tensor<4x8xf32>,
// NONE-NEXT: lm.swiglu %{{.*}}, %{{.*}} : tensor<4x8xf32> {backward}
// NONE-NOT: lm.linear
// NONE: return

// The last projection, whose result the backward half does not read, is not made again.
// FULL: func.func private @layer.forward.[[MODE]](
// FULL-SAME: -> tensor<4x8xf32>
// FULL: func.func private @layer.backward.[[MODE]](
// FULL-COUNT-2: lm.linear
// FULL: lm.swiglu
// FULL-NOT: lm.linear
// FULL: return

// CHECK-LABEL: func.func @micro_first
// CHECK: call @layer.forward.[[MODE]](
// CHECK: call @layer.backward.[[MODE]](
func.func @micro_first() {
  %x = lm.load @x : tensor<4x8xf32>
  %w = lm.load @w : tensor<8x8xf32>
  %y:4 = call @layer.forward(%x, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  %dw = call @layer.backward(%y#0, %y#1, %y#2, %y#3) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
  lm.store %dw, @w : tensor<8x8xf32>
  return
}
