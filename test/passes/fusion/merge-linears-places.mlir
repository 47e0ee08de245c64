// lm-merge-linears where names, orders and types stand in the way.
// RUN: lmc-opt %s -split-input-file --lm-merge-linears | FileCheck %s

// The weights may be the layer's first arguments, in another order than their readers.
// CHECK:       lm.variable @"q+k" parameter : tensor<6x4xf32>
// CHECK-LABEL: func.func private @layer(
// CHECK-SAME:    %[[W:[^ ]*]]: tensor<6x4xf32>, %[[X:[^ ]*]]: tensor<6x4xf32>)
// CHECK-NEXT:    lm.linear %[[X]], %[[W]]
// CHECK:         call @layer(%{{.*}}, %{{.*}}) : (tensor<6x4xf32>, tensor<6x4xf32>)
lm.variable @x input : tensor<6x4xf32> init none
lm.variable @q parameter : tensor<4x4xf32> init zeros
lm.variable @k parameter : tensor<2x4xf32> init zeros
func.func private @layer(%wk: tensor<2x4xf32>, %wq: tensor<4x4xf32>, %x: tensor<6x4xf32>) -> (tensor<6x4xf32>, tensor<6x2xf32>) {
  %q = lm.linear %x, %wq : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
  %k = lm.linear %x, %wk : (tensor<6x4xf32>, tensor<2x4xf32>) -> tensor<6x2xf32>
  return %q, %k : tensor<6x4xf32>, tensor<6x2xf32>
}
func.func @forward() -> (tensor<6x4xf32>, tensor<6x2xf32>) {
  %x = lm.load @x : tensor<6x4xf32>
  %wq = lm.load @q : tensor<4x4xf32>
  %wk = lm.load @k : tensor<2x4xf32>
  %y:2 = call @layer(%wk, %wq, %x) : (tensor<2x4xf32>, tensor<4x4xf32>, tensor<6x4xf32>) -> (tensor<6x4xf32>, tensor<6x2xf32>)
  return %y#0, %y#1 : tensor<6x4xf32>, tensor<6x2xf32>
}

// -----

// The merged rope stands where the first of them stood, before all readers.
// CHECK-LABEL: func.func private @layer(
// CHECK:         lm.rope
// CHECK:         lm.split
// CHECK:         lm.add
// CHECK-NOT:     lm.rope
lm.variable @x input : tensor<6x4xf32> init none
lm.variable @cos table : tensor<6x1xf32> init none
lm.variable @q parameter : tensor<4x4xf32> init zeros
lm.variable @k parameter : tensor<4x4xf32> init zeros
func.func private @layer(%x: tensor<6x4xf32>, %cos: tensor<6x1xf32>, %wq: tensor<4x4xf32>, %wk: tensor<4x4xf32>) -> (tensor<6x4xf32>, tensor<6x4xf32>) {
  %q = lm.linear %x, %wq : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
  %k = lm.linear %x, %wk : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
  %rk = lm.rope %k, %cos, %cos head_dim 2 : (tensor<6x4xf32>, tensor<6x1xf32>, tensor<6x1xf32>) -> tensor<6x4xf32>
  %s = lm.add %rk, %x : tensor<6x4xf32>
  %rq = lm.rope %q, %cos, %cos head_dim 2 : (tensor<6x4xf32>, tensor<6x1xf32>, tensor<6x1xf32>) -> tensor<6x4xf32>
  return %rq, %s : tensor<6x4xf32>, tensor<6x4xf32>
}
func.func @forward() -> (tensor<6x4xf32>, tensor<6x4xf32>) {
  %x = lm.load @x : tensor<6x4xf32>
  %cos = lm.load @cos : tensor<6x1xf32>
  %wq = lm.load @q : tensor<4x4xf32>
  %wk = lm.load @k : tensor<4x4xf32>
  %y:2 = call @layer(%x, %cos, %wq, %wk) : (tensor<6x4xf32>, tensor<6x1xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<6x4xf32>, tensor<6x4xf32>)
  return %y#0, %y#1 : tensor<6x4xf32>, tensor<6x4xf32>
}

// -----

// A variable that is stored to somewhere keeps its place.
// CHECK-LABEL: func.func private @layer(
// CHECK-COUNT-2: lm.linear
// CHECK:         lm.store %{{.*}}, @k
lm.variable @x input : tensor<6x4xf32> init none
lm.variable @q parameter : tensor<4x4xf32> init zeros
lm.variable @k parameter : tensor<4x4xf32> init zeros
func.func private @layer(%x: tensor<6x4xf32>, %wq: tensor<4x4xf32>, %wk: tensor<4x4xf32>) -> (tensor<6x4xf32>, tensor<6x4xf32>) {
  %q = lm.linear %x, %wq : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
  %k = lm.linear %x, %wk : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
  return %q, %k : tensor<6x4xf32>, tensor<6x4xf32>
}
func.func @forward() -> (tensor<6x4xf32>) {
  %x = lm.load @x : tensor<6x4xf32>
  %wq = lm.load @q : tensor<4x4xf32>
  %wk = lm.load @k : tensor<4x4xf32>
  %y:2 = call @layer(%x, %wq, %wk) : (tensor<6x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<6x4xf32>, tensor<6x4xf32>)
  return %y#0 : tensor<6x4xf32>
}
func.func @other() {
  %x = lm.load @x : tensor<6x4xf32>
  %s = arith.constant dense<1.0> : tensor<4x4xf32>
  lm.store %s, @k : tensor<4x4xf32>
  return
}

// -----

// Outputs of two types are two matrices.
// CHECK-LABEL: func.func private @layer(
// CHECK-COUNT-2: lm.linear
// CHECK-NOT:     lm.split
lm.variable @x input : tensor<6x4xbf16> init none
lm.variable @q parameter : tensor<4x4xbf16> init zeros
lm.variable @k parameter : tensor<4x4xbf16> init zeros
func.func private @layer(%x: tensor<6x4xbf16>, %wq: tensor<4x4xbf16>, %wk: tensor<4x4xbf16>) -> (tensor<6x4xbf16>, tensor<6x4xf32>) {
  %q = lm.linear %x, %wq : (tensor<6x4xbf16>, tensor<4x4xbf16>) -> tensor<6x4xbf16>
  %k = lm.linear %x, %wk : (tensor<6x4xbf16>, tensor<4x4xbf16>) -> tensor<6x4xf32>
  return %q, %k : tensor<6x4xbf16>, tensor<6x4xf32>
}
func.func @forward() -> (tensor<6x4xbf16>, tensor<6x4xf32>) {
  %x = lm.load @x : tensor<6x4xbf16>
  %wq = lm.load @q : tensor<4x4xbf16>
  %wk = lm.load @k : tensor<4x4xbf16>
  %y:2 = call @layer(%x, %wq, %wk) : (tensor<6x4xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>) -> (tensor<6x4xbf16>, tensor<6x4xf32>)
  return %y#0, %y#1 : tensor<6x4xbf16>, tensor<6x4xf32>
}

// -----

// What is said of an argument stays with it.
// CHECK-LABEL: func.func private @layer(
// CHECK-SAME:    tensor<6x4xf32> {llvm.noalias}, %{{[^ ]*}}: tensor<6x4xf32>)
lm.variable @x input : tensor<6x4xf32> init none
lm.variable @q parameter : tensor<4x4xf32> init zeros
lm.variable @k parameter : tensor<2x4xf32> init zeros
func.func private @layer(%x: tensor<6x4xf32> {llvm.noalias}, %wk: tensor<2x4xf32>, %wq: tensor<4x4xf32>) -> (tensor<6x4xf32>, tensor<6x2xf32>) {
  %q = lm.linear %x, %wq : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32>
  %k = lm.linear %x, %wk : (tensor<6x4xf32>, tensor<2x4xf32>) -> tensor<6x2xf32>
  return %q, %k : tensor<6x4xf32>, tensor<6x2xf32>
}
func.func @forward() -> (tensor<6x4xf32>, tensor<6x2xf32>) {
  %x = lm.load @x : tensor<6x4xf32>
  %wq = lm.load @q : tensor<4x4xf32>
  %wk = lm.load @k : tensor<2x4xf32>
  %y:2 = call @layer(%x, %wk, %wq) : (tensor<6x4xf32>, tensor<2x4xf32>, tensor<4x4xf32>) -> (tensor<6x4xf32>, tensor<6x2xf32>)
  return %y#0, %y#1 : tensor<6x4xf32>, tensor<6x2xf32>
}
