// lm-accumulate-gradients makes one function per position in the accumulation: the first stores, the others add.
// RUN: lmc-opt %s -split-input-file --lm-accumulate-gradients=steps=3 | FileCheck %s
// RUN: lmc-opt %s -split-input-file --lm-accumulate-gradients | FileCheck %s --check-prefix=ONE
// RUN: lmc-opt %s -split-input-file --lm-accumulate-gradients=steps=2 | FileCheck %s --check-prefix=TWO

// As many functions as there are positions.
// ONE-NOT:  func.func @
// ONE:      func.func @micro_first()
// ONE-NOT:  func.func @
// ONE:      {{^[/][/] ---}}
// TWO-NOT:  func.func @
// TWO:      func.func @micro_first()
// TWO-NOT:  func.func @
// TWO:      func.func @micro_last()
// TWO-NOT:  func.func @
// TWO:      {{^[/][/] ---}}

// The first stores what it makes; what comes second adds to that.
// CHECK-LABEL: func.func @micro_first() {
// CHECK-NOT:     lm.load @{{.*}}grad
// CHECK-NOT:     lm.load @run.loss :
// CHECK:         %[[IDS:.*]] = lm.load @ids
// CHECK:         %[[X:.*]] = lm.load @x
// CHECK:         %[[SCALE:.*]] = lm.load @run.loss_scale
// CHECK-NEXT:    %[[LOSS:.*]], %[[DX:.*]], %[[DE:.*]] = lm.linear_cross_entropy_grad %[[X]], %{{.*}}, %[[IDS]], %[[SCALE]] chunk 4
// CHECK-NEXT:    %[[DW:.*]] = lm.matmul %[[DX]], %[[X]] : {{.*}} {transpose_a}
// CHECK-NEXT:    lm.store %[[DW]], @w.grad
// CHECK-NEXT:    %[[DB:.*]] = lm.sum_rows %[[DX]]
// CHECK-NEXT:    lm.store %[[DB]], @b.grad
// CHECK-NEXT:    %[[SUM:.*]] = lm.embedding_grad %[[IDS]], %[[DX]] acc %[[DE]]
// CHECK-NEXT:    lm.store %[[SUM]], @e.grad
// CHECK-NEXT:    %[[MEAN:.*]] = lm.scale %[[LOSS]], %[[SCALE]]
// CHECK-NEXT:    lm.store %[[MEAN]], @run.loss
// CHECK-NEXT:    return

// The others add: inside the op that makes the contribution where it can, else after it.
// A variable is stored once, with its last contribution.
// CHECK-LABEL: func.func @micro() {
// CHECK-DAG:     %[[OLDLOSS:.*]] = lm.load @run.loss :
// CHECK-DAG:     %[[OLDB:.*]] = lm.load @b.grad
// CHECK-DAG:     %[[OLDW:.*]] = lm.load @w.grad
// CHECK-DAG:     %[[OLDE:.*]] = lm.load @e.grad
// CHECK:         %[[IDS:.*]] = lm.load @ids
// CHECK:         %[[X:.*]] = lm.load @x
// CHECK:         %[[SCALE:.*]] = lm.load @run.loss_scale
// CHECK-NEXT:    %[[LOSS:.*]], %[[DX:.*]], %[[DE:.*]] = lm.linear_cross_entropy_grad %[[X]], %{{.*}}, %[[IDS]], %[[SCALE]] acc %[[OLDE]] chunk 4
// CHECK-NEXT:    %[[DW:.*]] = lm.matmul %[[DX]], %[[X]] acc %[[OLDW]] : {{.*}} {transpose_a}
// CHECK-NEXT:    lm.store %[[DW]], @w.grad
// CHECK-NEXT:    %[[DB:.*]] = lm.sum_rows %[[DX]]
// CHECK-NEXT:    %[[NEWB:.*]] = lm.add %[[OLDB]], %[[DB]]
// CHECK-NEXT:    lm.store %[[NEWB]], @b.grad
// CHECK-NEXT:    %[[SUM:.*]] = lm.embedding_grad %[[IDS]], %[[DX]] acc %[[DE]]
// CHECK-NEXT:    lm.store %[[SUM]], @e.grad
// CHECK-NEXT:    %[[MEAN:.*]] = lm.scale %[[LOSS]], %[[SCALE]]
// CHECK-NEXT:    %[[NEWLOSS:.*]] = lm.add %[[OLDLOSS]], %[[MEAN]]
// CHECK-NEXT:    lm.store %[[NEWLOSS]], @run.loss
// CHECK-NEXT:    return

// CHECK-LABEL: func.func @micro_last() {
// CHECK:         lm.linear_cross_entropy_grad {{.*}} acc
// CHECK:         return
// CHECK-NOT:   func.func @micro
lm.variable @x input : tensor<4x8xf32> init none
lm.variable @ids input : tensor<4xi32> init none
lm.variable @e parameter : tensor<16x8xf32> init zeros
lm.variable @e.grad gradient : tensor<16x8xf32> init zeros {parameter = "e"}
lm.variable @w parameter : tensor<8x8xf32> init zeros
lm.variable @w.grad gradient : tensor<8x8xf32> init zeros {parameter = "w"}
lm.variable @b.grad gradient : tensor<8xf32> init zeros {parameter = "w"}
lm.variable @run.loss_scale scalar : tensor<f32> init none
lm.variable @run.loss scalar : tensor<f32> init none
func.func @micro() {
  %ids = lm.load @ids : tensor<4xi32>
  %e = lm.load @e : tensor<16x8xf32>
  %x = lm.load @x : tensor<4x8xf32>
  %w = lm.load @w : tensor<8x8xf32>
  %s = lm.load @run.loss_scale : tensor<f32>
  %loss, %dx, %de = lm.linear_cross_entropy_grad %x, %e, %ids, %s chunk 4 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>, tensor<f32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>)
  lm.accumulate %de, @e.grad : tensor<16x8xf32>
  %dw = lm.matmul %dx, %x : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32> {transpose_a}
  lm.accumulate %dw, @w.grad : tensor<8x8xf32>
  %db = lm.sum_rows %dx : (tensor<4x8xf32>) -> tensor<8xf32>
  lm.accumulate %db, @b.grad : tensor<8xf32>
  %dtable = lm.embedding_grad %ids, %dx : (tensor<4xi32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  lm.accumulate %dtable, @e.grad : tensor<16x8xf32>
  %mean = lm.scale %loss, %s : (tensor<f32>, tensor<f32>) -> tensor<f32>
  lm.accumulate %mean, @run.loss : tensor<f32>
  return
}

// -----

// A layer whose calls each make the gradients of their own parameters accumulates inside:
// in a copy that takes the accumulators, which all calls share.
// CHECK-LABEL: func.func private @layer.backward(
// CHECK-NOT:     acc
// CHECK:         return
// CHECK-LABEL: func.func private @layer.backward.accumulate(
// CHECK-SAME:    %[[DY:[^ ]*]]: tensor<4x8xf32>, %[[X:[^ ]*]]: tensor<4x8xf32>, %[[V:[^ ]*]]: tensor<8xf32>, %[[U:[^ ]*]]: tensor<8x8xf32>)
// CHECK-SAME:    -> (tensor<4x8xf32>, tensor<8xf32>, tensor<8x8xf32>) {
// CHECK-NEXT:    %[[DW:.*]] = lm.matmul %[[DY]], %[[X]] acc %[[U]] : {{.*}} {backward, transpose_a}
// CHECK-NEXT:    %[[DB:.*]] = lm.sum_rows %[[DY]]
// CHECK-NEXT:    %[[DX:.*]] = lm.add %[[DY]], %[[X]]
// CHECK-NEXT:    %[[NEWV:.*]] = lm.add %[[V]], %[[DB]]
// CHECK-NEXT:    return %[[DX]], %[[NEWV]], %[[DW]] :
// CHECK-NOT:   func.func private
// CHECK-LABEL: func.func @micro_first() {
// CHECK:         %[[A:.*]]:3 = call @layer.backward(
// CHECK-NEXT:    lm.store %[[A]]#2, @u.grad
// CHECK-NEXT:    lm.store %[[A]]#1, @v.grad
// CHECK-NEXT:    %[[B:.*]]:3 = call @layer.backward(
// CHECK-NEXT:    lm.store %[[B]]#2, @u2.grad
// CHECK-NEXT:    lm.store %[[B]]#1, @v2.grad
// CHECK-LABEL: func.func @micro() {
// CHECK:         %[[X:.*]] = lm.load @x
// CHECK-NEXT:    %[[V:.*]] = lm.load @v.grad
// CHECK-NEXT:    %[[U:.*]] = lm.load @u.grad
// CHECK-NEXT:    %[[A:.*]]:3 = call @layer.backward.accumulate(%[[X]], %[[X]], %[[V]], %[[U]])
// CHECK-NEXT:    lm.store %[[A]]#2, @u.grad
// CHECK-NEXT:    lm.store %[[A]]#1, @v.grad
// CHECK-NEXT:    %[[V2:.*]] = lm.load @v2.grad
// CHECK-NEXT:    %[[U2:.*]] = lm.load @u2.grad
// CHECK-NEXT:    %[[B:.*]]:3 = call @layer.backward.accumulate(%[[A]]#0, %[[X]], %[[V2]], %[[U2]])
// CHECK-NEXT:    lm.store %[[B]]#2, @u2.grad
// CHECK-NEXT:    lm.store %[[B]]#1, @v2.grad
// CHECK-NEXT:    return
// CHECK-LABEL: func.func @micro_last() {
// CHECK:         call @layer.backward.accumulate(
// CHECK:         call @layer.backward.accumulate(
// CHECK:         return
lm.variable @x input : tensor<4x8xf32> init none
lm.variable @u.grad gradient : tensor<8x8xf32> init zeros {parameter = "u"}
lm.variable @v.grad gradient : tensor<8xf32> init zeros {parameter = "v"}
lm.variable @u2.grad gradient : tensor<8x8xf32> init zeros {parameter = "u2"}
lm.variable @v2.grad gradient : tensor<8xf32> init zeros {parameter = "v2"}
func.func private @layer.backward(%dy: tensor<4x8xf32>, %x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>, tensor<8x8xf32>) {
  %dw = lm.matmul %dy, %x : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32> {backward, transpose_a}
  %db = lm.sum_rows %dy : (tensor<4x8xf32>) -> tensor<8xf32> {backward}
  %dx = lm.add %dy, %x : tensor<4x8xf32> {backward}
  return %dx, %db, %dw : tensor<4x8xf32>, tensor<8xf32>, tensor<8x8xf32>
}
func.func @micro() {
  %x = lm.load @x : tensor<4x8xf32>
  %0:3 = call @layer.backward(%x, %x) : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>, tensor<8x8xf32>)
  lm.accumulate %0#2, @u.grad : tensor<8x8xf32>
  lm.accumulate %0#1, @v.grad : tensor<8xf32>
  %1:3 = call @layer.backward(%0#0, %x) : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>, tensor<8x8xf32>)
  lm.accumulate %1#2, @u2.grad : tensor<8x8xf32>
  lm.accumulate %1#1, @v2.grad : tensor<8xf32>
  return
}

// -----

// Two calls that contribute to one gradient add outside, and the sum is stored once.
// CHECK-NOT:   @layer.backward.accumulate
// CHECK-LABEL: func.func @micro_first() {
// CHECK:         %[[A:.*]]:2 = call @layer.backward(
// CHECK-NEXT:    %[[B:.*]]:2 = call @layer.backward(
// CHECK-NEXT:    %[[SUM:.*]] = lm.add %[[A]]#1, %[[B]]#1
// CHECK-NEXT:    lm.store %[[SUM]], @u.grad
// CHECK-NEXT:    return
// CHECK-LABEL: func.func @micro() {
// CHECK-NEXT:    %[[U:.*]] = lm.load @u.grad
// CHECK:         %[[A:.*]]:2 = call @layer.backward(
// CHECK-NEXT:    %[[SUM:.*]] = lm.add %[[U]], %[[A]]#1
// CHECK-NEXT:    %[[B:.*]]:2 = call @layer.backward(
// CHECK-NEXT:    %[[SUM2:.*]] = lm.add %[[SUM]], %[[B]]#1
// CHECK-NEXT:    lm.store %[[SUM2]], @u.grad
// CHECK-NEXT:    return
lm.variable @x input : tensor<4x8xf32> init none
lm.variable @u.grad gradient : tensor<8x8xf32> init zeros {parameter = "u"}
func.func private @layer.backward(%dy: tensor<4x8xf32>, %x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8x8xf32>) {
  %dw = lm.matmul %dy, %x : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32> {backward, transpose_a}
  %dx = lm.add %dy, %x : tensor<4x8xf32> {backward}
  return %dx, %dw : tensor<4x8xf32>, tensor<8x8xf32>
}
func.func @micro() {
  %x = lm.load @x : tensor<4x8xf32>
  %0:2 = call @layer.backward(%x, %x) : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8x8xf32>)
  lm.accumulate %0#1, @u.grad : tensor<8x8xf32>
  %1:2 = call @layer.backward(%0#0, %x) : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8x8xf32>)
  lm.accumulate %1#1, @u.grad : tensor<8x8xf32>
  return
}

// -----

// What a forward half returns is added outside, so that all micro-steps call the same forward half.
// CHECK-NOT:   @layer.forward.accumulate
// CHECK-LABEL: func.func @micro_first() {
// CHECK:         %[[A:.*]]:2 = call @layer.forward(
// CHECK-NEXT:    lm.store %[[A]]#1, @sum
// CHECK-LABEL: func.func @micro() {
// CHECK-NEXT:    %[[OLD:.*]] = lm.load @sum
// CHECK:         %[[A:.*]]:2 = call @layer.forward(
// CHECK-NEXT:    %[[NEW:.*]] = lm.add %[[OLD]], %[[A]]#1 : tensor<8xf32>{{$}}
// CHECK-NEXT:    lm.store %[[NEW]], @sum
lm.variable @x input : tensor<4x8xf32> init none
lm.variable @sum input : tensor<8xf32> init zeros
func.func private @layer.forward(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>) {
  %y = lm.add %x, %x : tensor<4x8xf32>
  %e = lm.router_entropy %x : (tensor<4x8xf32>) -> tensor<8xf32>
  return %y, %e : tensor<4x8xf32>, tensor<8xf32>
}
func.func @micro() {
  %x = lm.load @x : tensor<4x8xf32>
  %0:2 = call @layer.forward(%x) : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>)
  lm.accumulate %0#1, @sum : tensor<8xf32>
  return
}
