// lm-fold-swiglu: a product and the SwiGLU of its halves, or its gradient, are one op.
// RUN: lmc-opt %s --lm-fold-swiglu | FileCheck %s

// CHECK-LABEL: func.func @forward(
// CHECK-SAME:    %[[X:[^ ]*]]: tensor<4x8xbf16>, %[[W:[^ ]*]]: tensor<32x8xbf16>)
// CHECK-NEXT:    %{{.*}}, %[[A:.*]] = lm.linear_swiglu %[[X]], %[[W]] : (tensor<4x8xbf16>, tensor<32x8xbf16>) -> (tensor<4x32xbf16>, tensor<4x16xbf16>){{$}}
// CHECK-NEXT:    return %[[A]]
func.func @forward(%x: tensor<4x8xbf16>, %w: tensor<32x8xbf16>) -> tensor<4x16xbf16> {
  %gu = lm.linear %x, %w : (tensor<4x8xbf16>, tensor<32x8xbf16>) -> tensor<4x32xbf16>
  %g, %u = lm.split %gu : (tensor<4x32xbf16>) -> (tensor<4x16xbf16>, tensor<4x16xbf16>)
  %a = lm.swiglu %g, %u : tensor<4x16xbf16>
  return %a : tensor<4x16xbf16>
}

// The halves are kept for the backward pass.
// CHECK-LABEL: func.func @kept(
// CHECK-NEXT:    %[[GU:.*]], %[[A:.*]] = lm.linear_swiglu {{.*}} {both}
// CHECK-NEXT:    return %[[A]], %[[GU]]
func.func @kept(%x: tensor<4x8xbf16>, %w: tensor<32x8xbf16>) -> (tensor<4x16xbf16>, tensor<4x32xbf16>) {
  %gu = lm.linear %x, %w : (tensor<4x8xbf16>, tensor<32x8xbf16>) -> tensor<4x32xbf16>
  %g, %u = lm.split %gu : (tensor<4x32xbf16>) -> (tensor<4x16xbf16>, tensor<4x16xbf16>)
  %a = lm.swiglu %g, %u : tensor<4x16xbf16>
  return %a, %gu : tensor<4x16xbf16>, tensor<4x32xbf16>
}

// The backward pass computes the activation again, and reads it before the gradients.
// CHECK-LABEL: func.func @gradient(
// CHECK-SAME:    %[[DY:[^ ]*]]: tensor<4x8xbf16>, %[[W:[^ ]*]]: tensor<8x16xbf16>, %[[GU:[^ ]*]]: tensor<4x32xbf16>)
// CHECK-NEXT:    %[[DGU:.*]], %[[A:.*]] = lm.swiglu_linear_grad %[[DY]], %[[W]], %[[GU]] : (tensor<4x8xbf16>, tensor<8x16xbf16>, tensor<4x32xbf16>) -> (tensor<4x32xbf16>, tensor<4x16xbf16>) {backward, both, layer = 3 : i64}
// CHECK-NEXT:    %[[DW:.*]] = lm.matmul %[[DY]], %[[A]] :
// CHECK-NEXT:    return %[[DW]], %[[DGU]]
func.func @gradient(%dy: tensor<4x8xbf16>, %w: tensor<8x16xbf16>, %gu: tensor<4x32xbf16>) -> (tensor<8x16xf32>, tensor<4x32xbf16>) {
  %d = lm.matmul %dy, %w : (tensor<4x8xbf16>, tensor<8x16xbf16>) -> tensor<4x16xbf16> {backward, layer = 3 : i64}
  %g, %u = lm.split %gu : (tensor<4x32xbf16>) -> (tensor<4x16xbf16>, tensor<4x16xbf16>)
  %a = lm.swiglu %g, %u : tensor<4x16xbf16>
  %dw = lm.matmul %dy, %a : (tensor<4x8xbf16>, tensor<4x16xbf16>) -> tensor<8x16xf32> {transpose_a}
  %dg, %du = lm.swiglu_grad %d, %g, %u : tensor<4x16xbf16> {backward, layer = 3 : i64}
  %dgu = lm.join %dg, %du : (tensor<4x16xbf16>, tensor<4x16xbf16>) -> tensor<4x32xbf16>
  return %dw, %dgu : tensor<8x16xf32>, tensor<4x32xbf16>
}

// The activation was kept; the halves are computed again by a product of its own.
// CHECK-LABEL: func.func @activation_kept(
// CHECK-NEXT:    %[[GU:.*]] = lm.linear
// CHECK-NEXT:    lm.swiglu_linear_grad %{{.*}}, %{{.*}}, %[[GU]] : {{.*}}tensor<4x16xbf16>){{$}}
// CHECK-NEXT:    return
func.func @activation_kept(%x: tensor<4x8xbf16>, %up: tensor<32x8xbf16>, %dy: tensor<4x8xbf16>, %w: tensor<8x16xbf16>) -> tensor<4x32xbf16> {
  %gu = lm.linear %x, %up : (tensor<4x8xbf16>, tensor<32x8xbf16>) -> tensor<4x32xbf16>
  %g, %u = lm.split %gu : (tensor<4x32xbf16>) -> (tensor<4x16xbf16>, tensor<4x16xbf16>)
  %d = lm.matmul %dy, %w : (tensor<4x8xbf16>, tensor<8x16xbf16>) -> tensor<4x16xbf16>
  %dg, %du = lm.swiglu_grad %d, %g, %u : tensor<4x16xbf16>
  %dgu = lm.join %dg, %du : (tensor<4x16xbf16>, tensor<4x16xbf16>) -> tensor<4x32xbf16>
  return %dgu : tensor<4x32xbf16>
}

// Gradients would take the place of halves that another op reads.
// CHECK-LABEL: func.func @halves_read_later(
// CHECK:         lm.swiglu_grad
// CHECK-NOT:     lm.swiglu_linear_grad
// CHECK:         return
func.func @halves_read_later(%dy: tensor<4x8xbf16>, %w: tensor<8x16xbf16>, %gu: tensor<4x32xbf16>) -> (tensor<4x32xbf16>, tensor<4x32xbf16>) {
  %d = lm.matmul %dy, %w : (tensor<4x8xbf16>, tensor<8x16xbf16>) -> tensor<4x16xbf16>
  %g, %u = lm.split %gu : (tensor<4x32xbf16>) -> (tensor<4x16xbf16>, tensor<4x16xbf16>)
  %dg, %du = lm.swiglu_grad %d, %g, %u : tensor<4x16xbf16>
  %dgu = lm.join %dg, %du : (tensor<4x16xbf16>, tensor<4x16xbf16>) -> tensor<4x32xbf16>
  %both = lm.add %gu, %dgu : tensor<4x32xbf16>
  return %dgu, %both : tensor<4x32xbf16>, tensor<4x32xbf16>
}

// Another op reads the gradient of the activation, or the halves apart from each other.
// CHECK-LABEL: func.func @read_elsewhere(
// CHECK:         lm.swiglu_grad
// CHECK:         lm.swiglu_grad
// CHECK-NOT:     lm.swiglu_linear_grad
// CHECK:         return
func.func @read_elsewhere(%dy: tensor<4x8xbf16>, %w: tensor<8x16xbf16>, %gu: tensor<4x32xbf16>) -> (tensor<4x16xbf16>, tensor<4x32xbf16>, tensor<4x16xbf16>, tensor<4x16xbf16>) {
  %d = lm.matmul %dy, %w : (tensor<4x8xbf16>, tensor<8x16xbf16>) -> tensor<4x16xbf16>
  %g, %u = lm.split %gu : (tensor<4x32xbf16>) -> (tensor<4x16xbf16>, tensor<4x16xbf16>)
  %dg, %du = lm.swiglu_grad %d, %g, %u : tensor<4x16xbf16>
  %dgu = lm.join %dg, %du : (tensor<4x16xbf16>, tensor<4x16xbf16>) -> tensor<4x32xbf16>
  %e = lm.matmul %dy, %w : (tensor<4x8xbf16>, tensor<8x16xbf16>) -> tensor<4x16xbf16>
  %eg, %eu = lm.swiglu_grad %e, %g, %u : tensor<4x16xbf16>
  return %d, %dgu, %eg, %eu : tensor<4x16xbf16>, tensor<4x32xbf16>, tensor<4x16xbf16>, tensor<4x16xbf16>
}

// A bias, f32, rows of no whole units of 16 bytes, and weights the other way round.
// CHECK-LABEL: func.func @others(
// CHECK-NOT:     linear_swiglu
// CHECK:         return
func.func @others(%x: tensor<4x8xbf16>, %w: tensor<32x8xbf16>, %b: tensor<32xf32>, %y: tensor<4x8xf32>, %v: tensor<32x8xf32>, %odd: tensor<24x8xbf16>, %t: tensor<8x32xbf16>) -> (tensor<4x16xbf16>, tensor<4x16xf32>, tensor<4x12xbf16>, tensor<4x16xbf16>) {
  %0 = lm.linear %x, %w bias %b : (tensor<4x8xbf16>, tensor<32x8xbf16>, tensor<32xf32>) -> tensor<4x32xbf16>
  %g0, %u0 = lm.split %0 : (tensor<4x32xbf16>) -> (tensor<4x16xbf16>, tensor<4x16xbf16>)
  %a0 = lm.swiglu %g0, %u0 : tensor<4x16xbf16>
  %1 = lm.linear %y, %v : (tensor<4x8xf32>, tensor<32x8xf32>) -> tensor<4x32xf32>
  %g1, %u1 = lm.split %1 : (tensor<4x32xf32>) -> (tensor<4x16xf32>, tensor<4x16xf32>)
  %a1 = lm.swiglu %g1, %u1 : tensor<4x16xf32>
  %2 = lm.linear %x, %odd : (tensor<4x8xbf16>, tensor<24x8xbf16>) -> tensor<4x24xbf16>
  %g2, %u2 = lm.split %2 : (tensor<4x24xbf16>) -> (tensor<4x12xbf16>, tensor<4x12xbf16>)
  %a2 = lm.swiglu %g2, %u2 : tensor<4x12xbf16>
  %3 = lm.linear %x, %t : (tensor<4x8xbf16>, tensor<8x32xbf16>) -> tensor<4x32xbf16> {transposed}
  %g3, %u3 = lm.split %3 : (tensor<4x32xbf16>) -> (tensor<4x16xbf16>, tensor<4x16xbf16>)
  %a3 = lm.swiglu %g3, %u3 : tensor<4x16xbf16>
  return %a0, %a1, %a2, %a3 : tensor<4x16xbf16>, tensor<4x16xf32>, tensor<4x12xbf16>, tensor<4x16xbf16>
}

// The forward function of a layer returns the halves, twice, and the backward one takes them: the whole is
// passed instead, in all calls.
// CHECK-LABEL: func.func private @layer.forward(
// CHECK-SAME:    -> (tensor<4x16xbf16>, tensor<4x8xbf16>, tensor<4x32xbf16>)
// CHECK-NEXT:    %[[GU:.*]], %[[A:.*]] = lm.linear_swiglu {{.*}} {both}
// CHECK-NEXT:    return %[[A]], %{{.*}}, %[[GU]] :
func.func private @layer.forward(%x: tensor<4x8xbf16>, %w: tensor<32x8xbf16>) -> (tensor<4x16xbf16>, tensor<4x16xbf16>, tensor<4x8xbf16>, tensor<4x16xbf16>) {
  %gu = lm.linear %x, %w : (tensor<4x8xbf16>, tensor<32x8xbf16>) -> tensor<4x32xbf16>
  %g, %u = lm.split %gu : (tensor<4x32xbf16>) -> (tensor<4x16xbf16>, tensor<4x16xbf16>)
  %a = lm.swiglu %g, %u : tensor<4x16xbf16>
  return %a, %u, %x, %g : tensor<4x16xbf16>, tensor<4x16xbf16>, tensor<4x8xbf16>, tensor<4x16xbf16>
}
// CHECK-LABEL: func.func private @layer.backward(
// CHECK-SAME:    %[[DY:[^ ]*]]: tensor<4x8xbf16>, %[[W:[^ ]*]]: tensor<8x16xbf16>, %[[GU:[^ ]*]]: tensor<4x32xbf16>) -> (tensor<8x16xf32>, tensor<4x32xbf16>)
// CHECK-NEXT:    %[[DGU:.*]], %[[A:.*]] = lm.swiglu_linear_grad %[[DY]], %[[W]], %[[GU]] : {{.*}} {both}
func.func private @layer.backward(%g: tensor<4x16xbf16>, %dy: tensor<4x8xbf16>, %u: tensor<4x16xbf16>, %g2: tensor<4x16xbf16>, %w: tensor<8x16xbf16>, %u2: tensor<4x16xbf16>) -> (tensor<8x16xf32>, tensor<4x32xbf16>) {
  %d = lm.matmul %dy, %w : (tensor<4x8xbf16>, tensor<8x16xbf16>) -> tensor<4x16xbf16>
  %a = lm.swiglu %g2, %u2 : tensor<4x16xbf16>
  %dw = lm.matmul %dy, %a : (tensor<4x8xbf16>, tensor<4x16xbf16>) -> tensor<8x16xf32> {transpose_a}
  %dg, %du = lm.swiglu_grad %d, %g, %u : tensor<4x16xbf16>
  %dgu = lm.join %dg, %du : (tensor<4x16xbf16>, tensor<4x16xbf16>) -> tensor<4x32xbf16>
  return %dw, %dgu : tensor<8x16xf32>, tensor<4x32xbf16>
}
// CHECK-LABEL: func.func @step(
// CHECK:         %[[F:.*]]:3 = call @layer.forward(%{{.*}}, %{{.*}}) {lm.layer = 0 : i64} :
// CHECK:         %[[S:.*]]:3 = call @layer.forward(%{{.*}}, %{{.*}}) {lm.layer = 1 : i64} :
// CHECK:         call @layer.backward(%{{.*}}, %{{.*}}, %[[S]]#2) :
// CHECK:         call @layer.backward(%{{.*}}, %{{.*}}, %[[F]]#2) :
// CHECK-NOT:     lm.split
func.func @step(%x: tensor<4x8xbf16>, %up: tensor<32x8xbf16>, %dy: tensor<4x8xbf16>, %w: tensor<8x16xbf16>) -> (tensor<4x32xbf16>, tensor<4x32xbf16>, tensor<4x16xbf16>) {
  %a:4 = call @layer.forward(%x, %up) {lm.layer = 0 : i64} : (tensor<4x8xbf16>, tensor<32x8xbf16>) -> (tensor<4x16xbf16>, tensor<4x16xbf16>, tensor<4x8xbf16>, tensor<4x16xbf16>)
  %b:4 = call @layer.forward(%a#2, %up) {lm.layer = 1 : i64} : (tensor<4x8xbf16>, tensor<32x8xbf16>) -> (tensor<4x16xbf16>, tensor<4x16xbf16>, tensor<4x8xbf16>, tensor<4x16xbf16>)
  %db:2 = call @layer.backward(%b#3, %dy, %b#1, %b#3, %w, %b#1) : (tensor<4x16xbf16>, tensor<4x8xbf16>, tensor<4x16xbf16>, tensor<4x16xbf16>, tensor<8x16xbf16>, tensor<4x16xbf16>) -> (tensor<8x16xf32>, tensor<4x32xbf16>)
  %da:2 = call @layer.backward(%a#3, %dy, %a#1, %a#3, %w, %a#1) : (tensor<4x16xbf16>, tensor<4x8xbf16>, tensor<4x16xbf16>, tensor<4x16xbf16>, tensor<8x16xbf16>, tensor<4x16xbf16>) -> (tensor<8x16xf32>, tensor<4x32xbf16>)
  return %db#1, %da#1, %a#0 : tensor<4x32xbf16>, tensor<4x32xbf16>, tensor<4x16xbf16>
}
