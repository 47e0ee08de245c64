// lm-autodiff makes @micro, and of a layer its two halves; @eval keeps the plain graph.
// RUN: lmc-opt %s -split-input-file --lm-autodiff | FileCheck %s

// A layer is split once, however often it is called. Its forward half also returns what
// the backward half reads and the caller does not have; arguments are passed again.

// Gradients are declared beside their parameters; inputs and scalars have none.
// CHECK:      lm.variable @x input
// CHECK-NEXT: lm.variable @g parameter
// CHECK-NEXT: lm.variable @g.grad gradient : tensor<8xf32> init zeros {parameter = "g"}
// CHECK-NEXT: lm.variable @w parameter
// CHECK-NEXT: lm.variable @w.grad gradient : tensor<8x8xf32> init zeros {parameter = "w"}
// CHECK-NEXT: lm.variable @head parameter
// CHECK-NEXT: lm.variable @head.grad gradient : tensor<16x8xf32> init zeros {parameter = "head"}
// CHECK-NEXT: lm.variable @targets input

// CHECK-LABEL: func.func private @layer(
// CHECK:         lm.add
// CHECK-NEXT:    return %{{.*}} : tensor<4x8xf32>{{$}}

// CHECK-LABEL: func.func private @layer.forward(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32>, %[[G:.*]]: tensor<8xf32>, %[[W:.*]]: tensor<8x8xf32>)
// CHECK:         %[[N:.*]] = lm.rms_norm %[[X]], %[[G]] eps 1.000000e-05
// CHECK-NEXT:    %[[H:.*]] = lm.linear %[[N]], %[[W]]
// CHECK-NEXT:    %[[Y:.*]] = lm.add %[[X]], %[[H]]
// CHECK-NEXT:    return %[[Y]], %[[N]] :

// The ops of the backward pass are marked. %x is used twice: its cotangents are summed.
// CHECK-LABEL: func.func private @layer.backward(
// CHECK-SAME:    %[[DY:.*]]: tensor<4x8xf32>, %[[N:.*]]: tensor<4x8xf32>, %[[W:.*]]: tensor<8x8xf32>, %[[X:.*]]: tensor<4x8xf32>, %[[G:.*]]: tensor<8xf32>)
// CHECK-SAME:    -> (tensor<4x8xf32>, tensor<8xf32>, tensor<8x8xf32>)
// CHECK-NEXT:    %[[DN:.*]] = lm.matmul %[[DY]], %[[W]] {{.*}} {backward}
// CHECK-NEXT:    %[[DW:.*]] = lm.matmul %[[DY]], %[[N]] {{.*}} {backward, transpose_a}
// CHECK-NEXT:    %[[DX:.*]], %[[DG:.*]] = lm.rms_norm_grad %[[DN]], %[[X]], %[[G]] eps 1.000000e-05 {{.*}} {backward}
// CHECK-NEXT:    %[[SUM:.*]] = lm.add %[[DY]], %[[DX]] {{.*}} {backward}
// CHECK-NEXT:    return %[[SUM]], %[[DG]], %[[DW]] :
// CHECK-NOT:   func.func private

// CHECK:       lm.variable @run.loss_scale scalar : tensor<f32>
// CHECK-NEXT:  lm.variable @run.loss scalar : tensor<f32>
// CHECK-NEXT:  lm.variable @run.eval_loss scalar : tensor<f32>

// CHECK-LABEL: func.func @eval() {
// CHECK:         call @layer(
// CHECK:         call @layer(
// CHECK:         %[[LOSS:.*]] = lm.linear_cross_entropy
// CHECK-NEXT:    lm.store %[[LOSS]], @run.eval_loss
// CHECK-NEXT:    return{{$}}

// The gradient op of the loss gives the loss too. Each contribution to a gradient is
// accumulated where it is made.
// CHECK-LABEL: func.func @micro() {
// CHECK-NEXT:    %[[X:.*]] = lm.load @x
// CHECK-NEXT:    %[[G:.*]] = lm.load @g
// CHECK-NEXT:    %[[W:.*]] = lm.load @w
// CHECK-NEXT:    %[[Y:.*]]:2 = call @layer.forward(%[[X]], %[[G]], %[[W]])
// CHECK-NEXT:    %[[Z:.*]]:2 = call @layer.forward(%[[Y]]#0, %[[G]], %[[W]])
// CHECK-NEXT:    %[[HEAD:.*]] = lm.load @head
// CHECK-NEXT:    %[[T:.*]] = lm.load @targets
// CHECK-NEXT:    %[[SCALE:.*]] = lm.load @run.loss_scale
// CHECK-NEXT:    %[[LOSS:.*]], %[[DZ:.*]], %[[DHEAD:.*]] = lm.linear_cross_entropy_grad %[[Z]]#0, %[[HEAD]], %[[T]], %[[SCALE]] chunk 4
// CHECK-NEXT:    lm.accumulate %[[DHEAD]], @head.grad
// CHECK-NEXT:    %[[DY:.*]]:3 = call @layer.backward(%[[DZ]], %[[Z]]#1, %[[W]], %[[Y]]#0, %[[G]])
// CHECK-NEXT:    lm.accumulate %[[DY]]#2, @w.grad
// CHECK-NEXT:    lm.accumulate %[[DY]]#1, @g.grad
// CHECK-NEXT:    %[[DX:.*]]:3 = call @layer.backward(%[[DY]]#0, %[[Y]]#1, %[[W]], %[[X]], %[[G]])
// CHECK-NEXT:    lm.accumulate %[[DX]]#2, @w.grad
// CHECK-NEXT:    lm.accumulate %[[DX]]#1, @g.grad
// CHECK-NEXT:    %[[MEAN:.*]] = lm.scale %[[LOSS]], %[[SCALE]]
// CHECK-NEXT:    lm.accumulate %[[MEAN]], @run.loss
// CHECK-NEXT:    return{{$}}
lm.variable @x input : tensor<4x8xf32> init none
lm.variable @g parameter : tensor<8xf32> init ones
lm.variable @w parameter : tensor<8x8xf32> init zeros {weight_decay}
lm.variable @head parameter : tensor<16x8xf32> init zeros
lm.variable @targets input : tensor<4xi32> init none
func.func private @layer(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %n = lm.rms_norm %x, %g eps 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %h = lm.linear %n, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %y = lm.add %x, %h : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<4x8xf32>
  %g = lm.load @g : tensor<8xf32>
  %w = lm.load @w : tensor<8x8xf32>
  %y = call @layer(%x, %g, %w) : (tensor<4x8xf32>, tensor<8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %z = call @layer(%y, %g, %w) : (tensor<4x8xf32>, tensor<8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %head = lm.load @head : tensor<16x8xf32>
  %t = lm.load @targets : tensor<4xi32>
  %loss = lm.linear_cross_entropy %z, %head, %t chunk 4 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Both operands of %s are %h: the sum of their cotangents goes on.
// CHECK-LABEL: func.func @micro() {
// CHECK:         %[[X:.*]] = lm.load @x
// CHECK:         %[[H:.*]] = lm.linear %[[X]],
// CHECK:         %{{.*}}, %[[DS:.*]], %{{.*}} = lm.linear_cross_entropy_grad
// CHECK:         %[[DGATE:.*]], %[[DUP:.*]] = lm.swiglu_grad %[[DS]], %[[H]], %[[H]]
// CHECK:         %[[DH:.*]] = lm.add %[[DGATE]], %[[DUP]]
// CHECK:         %[[DW:.*]] = lm.matmul %[[DH]], %[[X]] {{.*}} {backward, transpose_a}
// CHECK-NEXT:    lm.accumulate %[[DW]], @w.grad
lm.variable @x input : tensor<4x8xf32> init none
lm.variable @w parameter : tensor<8x8xf32> init zeros
lm.variable @head parameter : tensor<16x8xf32> init zeros
lm.variable @targets input : tensor<4xi32> init none
func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<4x8xf32>
  %w = lm.load @w : tensor<8x8xf32>
  %h = lm.linear %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %s = lm.swiglu %h, %h : tensor<4x8xf32>
  %head = lm.load @head : tensor<16x8xf32>
  %t = lm.load @targets : tensor<4xi32>
  %loss = lm.linear_cross_entropy %s, %head, %t chunk 4 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A tied parameter, held in bf16: the gradient is its master's, in f32, and the two
// contributions are not summed first, so that each can be added in place.
// CHECK:       lm.variable @e parameter
// CHECK-NEXT:  lm.variable @e.grad gradient : tensor<16x8xf32> init zeros {parameter = "e"}
// CHECK-NOT:   @e.compute.grad
// CHECK-LABEL: func.func @micro() {
// CHECK:         %[[IDS:.*]] = lm.load @ids
// CHECK:         %[[LOSS:.*]], %[[DX:.*]], %[[DHEAD:.*]] = lm.linear_cross_entropy_grad {{.*}} -> (tensor<f32>, tensor<4x8xbf16>, tensor<16x8xf32>)
// CHECK-NEXT:    lm.accumulate %[[DHEAD]], @e.grad : tensor<16x8xf32>
// CHECK-NEXT:    %[[DE:.*]] = lm.embedding_grad %[[IDS]], %[[DX]] : (tensor<4xi32>, tensor<4x8xbf16>) -> tensor<16x8xf32>
// CHECK-NEXT:    lm.accumulate %[[DE]], @e.grad : tensor<16x8xf32>
// CHECK-NOT:     lm.add
// CHECK:         return
lm.variable @ids input : tensor<4xi32> init none
lm.variable @e parameter : tensor<16x8xf32> init zeros
lm.variable @e.compute compute_copy : tensor<16x8xbf16> init copy_of(source = "e") {parameter = "e"}
func.func @forward() -> tensor<f32> {
  %ids = lm.load @ids : tensor<4xi32>
  %e = lm.load @e.compute : tensor<16x8xbf16>
  %x = lm.embedding %ids, %e : (tensor<4xi32>, tensor<16x8xbf16>) -> tensor<4x8xbf16>
  %loss = lm.linear_cross_entropy %x, %e, %ids chunk 4 : (tensor<4x8xbf16>, tensor<16x8xbf16>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A parameter that the loss does not depend on has no gradient.
// CHECK:       lm.variable @unused parameter
// CHECK-NOT:   @unused.grad
lm.variable @x input : tensor<4x8xf32> init none
lm.variable @unused parameter : tensor<8xf32> init ones
lm.variable @head parameter : tensor<16x8xf32> init zeros
lm.variable @t input : tensor<4xi32> init none
func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<4x8xf32>
  %u = lm.load @unused : tensor<8xf32>
  %n = lm.rms_norm %x, %u eps 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %head = lm.load @head : tensor<16x8xf32>
  %t = lm.load @t : tensor<4xi32>
  %loss = lm.linear_cross_entropy %x, %head, %t chunk 4 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// The other products: where an operand is stored transposed so is its gradient, and the
// accumulator's is the cotangent. A rotation goes back; attention reads its output and lse.
// CHECK-LABEL: func.func private @ops.forward(
// CHECK-SAME:    %[[X:[^ ]*]]: tensor<8x4xf32>,
// CHECK:         %[[M:.*]] = lm.matmul %[[X]],
// CHECK-NEXT:    %[[N:.*]] = lm.matmul %[[M]],
// CHECK-NEXT:    %[[L:.*]] = lm.linear %[[N]],
// CHECK-NEXT:    %[[R:.*]] = lm.rope %[[L]],
// CHECK-NEXT:    %[[O:.*]], %[[LSE:.*]] = lm.attention %[[R]], %[[L]], %[[N]] :
// CHECK-NEXT:    %[[S:.*]] = lm.swiglu %[[O]], %[[N]]
// CHECK-NEXT:    return %[[S]], %[[O]], %[[N]], %[[R]], %[[L]], %[[LSE]], %[[M]] :

// CHECK-LABEL: func.func private @ops.backward(
// CHECK-SAME:    %[[DY:[^ ]*]]: tensor<4x6xf32>, %[[O:[^ ]*]]: tensor<4x6xf32>, %[[N:[^ ]*]]: tensor<4x6xf32>, %[[R:[^ ]*]]: tensor<4x6xf32>,
// CHECK-SAME:    %[[L:[^ ]*]]: tensor<4x6xf32>, %[[LSE:[^ ]*]]: tensor<4x3xf32>, %[[M:[^ ]*]]: tensor<4x6xf32>,
// CHECK-SAME:    %[[COS:[^ ]*]]: tensor<2x1xf32>, %[[B:[^ ]*]]: tensor<6x6xf32>, %[[A:[^ ]*]]: tensor<8x6xf32>, %[[X:[^ ]*]]: tensor<8x4xf32>)
// CHECK-NEXT:    %[[DO:.*]], %[[DN:.*]] = lm.swiglu_grad %[[DY]], %[[O]], %[[N]] :
// CHECK-NEXT:    %[[DQ:.*]], %[[DK:.*]], %[[DV:.*]] = lm.attention_grad %[[DO]], %[[R]], %[[L]], %[[N]], %[[O]], %[[LSE]] : {{.*}} {backward, head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 2 : i64, window = 1 : i64}
// CHECK-NEXT:    %[[DN2:.*]] = lm.add %[[DN]], %[[DV]]
// CHECK-NEXT:    %[[BACK:.*]] = lm.rope %[[DQ]], %[[COS]], %[[COS]] head_dim 2 : {{.*}} {backward, inverse}
// CHECK-NEXT:    %[[DL:.*]] = lm.add %[[DK]], %[[BACK]]
// CHECK-NEXT:    %[[DN3:.*]] = lm.matmul %[[DL]], %[[B]] : {{.*}} {backward}
// CHECK-NEXT:    %[[DB1:.*]] = lm.matmul %[[DL]], %[[N]] : {{.*}} {backward, transpose_a}
// CHECK-NEXT:    %[[DBIAS:.*]] = lm.sum_rows %[[DL]] :
// CHECK-NEXT:    %[[DNSUM:.*]] = lm.add %[[DN2]], %[[DN3]]
// CHECK-NEXT:    %[[DM:.*]] = lm.matmul %[[DNSUM]], %[[B]] : {{.*}} {backward}
// CHECK-NEXT:    %[[DB2:.*]] = lm.matmul %[[DNSUM]], %[[M]] : {{.*}} {backward, transpose_a}
// CHECK-NEXT:    %[[DB:.*]] = lm.add %[[DB1]], %[[DB2]]
// CHECK-NEXT:    %[[DX:.*]] = lm.matmul %[[A]], %[[DM]] : {{.*}} -> tensor<8x4xf32> {backward, transpose_b}
// CHECK-NEXT:    %[[DA:.*]] = lm.matmul %[[X]], %[[DM]] : {{.*}} -> tensor<8x6xf32> {backward}
// CHECK-NEXT:    return %[[DX]], %[[DA]], %[[DM]], %[[DB]], %[[DBIAS]] :
lm.variable @x input : tensor<8x4xf32> init none
lm.variable @acc parameter : tensor<4x6xf32> init zeros
lm.variable @a parameter : tensor<8x6xf32> init zeros
lm.variable @b parameter : tensor<6x6xf32> init zeros
lm.variable @bias parameter : tensor<6xf32> init zeros
lm.variable @cos table : tensor<2x1xf32> init none
lm.variable @head parameter : tensor<16x6xf32> init zeros
lm.variable @t input : tensor<4xi32> init none
func.func private @ops(%x: tensor<8x4xf32>, %a: tensor<8x6xf32>, %acc: tensor<4x6xf32>, %b: tensor<6x6xf32>, %bias: tensor<6xf32>, %cos: tensor<2x1xf32>) -> tensor<4x6xf32> {
  %0 = lm.matmul %x, %a acc %acc : (tensor<8x4xf32>, tensor<8x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> {transpose_a}
  %1 = lm.matmul %0, %b : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32> {transpose_b}
  %2 = lm.linear %1, %b bias %bias : (tensor<4x6xf32>, tensor<6x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %3 = lm.rope %2, %cos, %cos head_dim 2 : (tensor<4x6xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x6xf32>
  %4:2 = lm.attention %3, %2, %1 : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x3xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 1 : i64}
  %5 = lm.swiglu %4#0, %1 : tensor<4x6xf32>
  return %5 : tensor<4x6xf32>
}
func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<8x4xf32>
  %a = lm.load @a : tensor<8x6xf32>
  %acc = lm.load @acc : tensor<4x6xf32>
  %b = lm.load @b : tensor<6x6xf32>
  %bias = lm.load @bias : tensor<6xf32>
  %cos = lm.load @cos : tensor<2x1xf32>
  %y = call @ops(%x, %a, %acc, %b, %bias, %cos) : (tensor<8x4xf32>, tensor<8x6xf32>, tensor<4x6xf32>, tensor<6x6xf32>, tensor<6xf32>, tensor<2x1xf32>) -> tensor<4x6xf32>
  %head = lm.load @head : tensor<16x6xf32>
  %t = lm.load @t : tensor<4xi32>
  %loss = lm.linear_cross_entropy %y, %head, %t chunk 4 : (tensor<4x6xf32>, tensor<16x6xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Where documents start is an input of the layer: both halves read it, nobody keeps it or asks
// for its gradient.
// CHECK-LABEL: func.func private @attend.forward(
// CHECK-SAME:    %[[X:[^ ]*]]: tensor<4x8xf32>, %[[S:[^ ]*]]: tensor<4xi32>)
// CHECK-NEXT:    %[[O:.*]], %[[LSE:.*]] = lm.attention %[[X]], %[[X]], %[[X]] starts %[[S]] :
// CHECK-NEXT:    return %[[O]], %[[O]], %[[LSE]] :
// CHECK-LABEL: func.func private @attend.backward(
// CHECK-SAME:    %[[DY:[^ ]*]]: tensor<4x8xf32>, %[[O:[^ ]*]]: tensor<4x8xf32>, %[[LSE:[^ ]*]]: tensor<4x4xf32>, %[[X:[^ ]*]]: tensor<4x8xf32>, %[[S:[^ ]*]]: tensor<4xi32>)
// CHECK:         lm.attention_grad %[[DY]], %[[X]], %[[X]], %[[X]], %[[O]], %[[LSE]] starts %[[S]] :
lm.variable @x parameter : tensor<4x8xf32> init zeros
lm.variable @head parameter : tensor<16x8xf32> init zeros
lm.variable @t input : tensor<4xi32> init none
lm.variable @starts input : tensor<4xi32> init none
func.func private @attend(%x: tensor<4x8xf32>, %s: tensor<4xi32>) -> tensor<4x8xf32> {
  %y:2 = lm.attention %x, %x, %x starts %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return %y#0 : tensor<4x8xf32>
}
func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<4x8xf32>
  %s = lm.load @starts : tensor<4xi32>
  %y = call @attend(%x, %s) : (tensor<4x8xf32>, tensor<4xi32>) -> tensor<4x8xf32>
  %head = lm.load @head : tensor<16x8xf32>
  %t = lm.load @t : tensor<4xi32>
  %loss = lm.linear_cross_entropy %y, %head, %t chunk 4 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}
