// What a mode drops is no longer returned by the forward half; the backward half makes it again.
// RUN: lmc-opt %s --lm-apply-recompute=mode=activation | FileCheck %s --check-prefixes=CHECK,ACT
// RUN: lmc-opt %s --lm-apply-recompute=mode=full | FileCheck %s --check-prefixes=CHECK,FULL
// RUN: lmc-opt %s --lm-apply-recompute=mode=block | FileCheck %s --check-prefixes=CHECK,BLOCK
// RUN: lmc-opt %s --lm-apply-recompute=mode=none | FileCheck %s --check-prefix=NONE
// RUN: not lmc-opt %s --lm-apply-recompute=mode=some 2>&1 | FileCheck %s --check-prefix=MODE
// RUN: not lmc-opt %s "--lm-apply-recompute=mode=block stride=0" 2>&1 | FileCheck %s --check-prefix=STRIDE

// MODE: error: has no recompute mode 'some'; choose none, activation, full or block
// STRIDE: error: needs a recompute stride of at least 1, got 0

lm.variable @x input : tensor<4x8xf32> {init = {kind = "none"}}
lm.variable @w parameter : tensor<8x8xf32> {init = {kind = "zeros"}}

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

// NONE-LABEL: func.func @micro_first
// NONE: call @layer.forward(
// NONE: call @layer.backward(
// NONE-NOT: recompute

// ACT-LABEL: func.func private @layer.forward.recompute
// ACT-SAME: -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
// ACT-LABEL: func.func private @layer.backward.recompute
// ACT: lm.swiglu
// ACT-NOT: lm.linear

// FULL-LABEL: func.func private @layer.forward.recompute
// FULL-SAME: -> tensor<4x8xf32>
// FULL-LABEL: func.func private @layer.backward.recompute
// FULL-COUNT-2: lm.linear
// FULL: lm.swiglu
// FULL-NOT: lm.linear
// FULL: return

// BLOCK-LABEL: func.func private @layer.forward.recompute
// BLOCK-SAME: -> tensor<4x8xf32>

// CHECK-LABEL: func.func @micro_first
// CHECK: call @layer.forward.recompute(
// CHECK: call @layer.backward.recompute(
func.func @micro_first() {
  %x = lm.load @x : tensor<4x8xf32>
  %w = lm.load @w : tensor<8x8xf32>
  %y:4 = call @layer.forward(%x, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>)
  %dw = call @layer.backward(%y#0, %y#1, %y#2, %y#3) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
  lm.store %dw, @w : tensor<8x8xf32>
  return
}
