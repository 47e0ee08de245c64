// lm-merge-linears: linear layers of one input become one over their weights laid together.
// RUN: lmc-opt %s -split-input-file --lm-merge-linears | FileCheck %s

// Weights, biases and compute copies; ropes side by side; the same for every call.
// CHECK:       lm.variable @"l0.q+k+v.weight" parameter : tensor<8x4xf32> init none {parts = [
// CHECK-SAME:    #lm.part<"l0.q.weight", rows = 4, init = normal(stddev = 1.000000e+00 : f64)>,
// CHECK-SAME:    #lm.part<"l0.k.weight", rows = 2, init = normal(stddev = 2.000000e+00 : f64)>,
// CHECK-SAME:    #lm.part<"l0.v.weight", rows = 2, init = normal(stddev = 3.000000e+00 : f64)>], weight_decay}
// CHECK:       lm.variable @"l0.q+k+v.weight.compute" compute_copy : tensor<8x4xbf16> init copy_of(source = "l0.q+k+v.weight") {parameter = "l0.q+k+v.weight"}
// CHECK:       lm.variable @"l0.q+k+v.bias" parameter : tensor<8xbf16> init none {parts = [
// CHECK-NOT:   lm.variable @l0
// CHECK:       lm.variable @"l1.q+k+v.weight" parameter
// CHECK-LABEL: func.func private @layer(
// CHECK-SAME:    %[[X:[^ ]*]]: tensor<6x4xbf16>, %[[COS:[^ ]*]]: tensor<6x1xf32>, %[[W:[^ ]*]]: tensor<8x4xbf16>, %[[B:[^ ]*]]: tensor<8xbf16>) -> tensor<6x4xbf16>
// CHECK-NEXT:    %[[Y:.*]] = lm.linear %[[X]], %[[W]] bias %[[B]] : {{.*}} -> tensor<6x8xbf16>
// CHECK-NEXT:    %[[S:.*]]:2 = lm.split %[[Y]] : (tensor<6x8xbf16>) -> (tensor<6x6xbf16>, tensor<6x2xbf16>)
// CHECK-NEXT:    %[[R:.*]] = lm.rope %[[S]]#0, %[[COS]], %[[COS]] head_dim 2 : {{.*}} -> tensor<6x6xbf16>
// CHECK-NEXT:    %[[P:.*]]:2 = lm.split %[[R]] : (tensor<6x6xbf16>) -> (tensor<6x4xbf16>, tensor<6x2xbf16>)
// CHECK-NEXT:    lm.attention %[[P]]#0, %[[P]]#1, %[[S]]#1
// CHECK-LABEL: func.func @forward
// CHECK:         %[[W0:.*]] = lm.load @"l0.q+k+v.weight.compute" : tensor<8x4xbf16>
// CHECK:         %[[B0:.*]] = lm.load @"l0.q+k+v.bias"
// CHECK:         call @layer(%{{.*}}, %{{.*}}, %[[W0]], %[[B0]])
// CHECK:         %[[W1:.*]] = lm.load @"l1.q+k+v.weight.compute"
// CHECK:         call @layer(%{{.*}}, %{{.*}}, %[[W1]],
lm.variable @x input : tensor<6x4xbf16> init none
lm.variable @cos table : tensor<6x1xf32> init none
lm.variable @l0.q.weight parameter : tensor<4x4xf32> init normal(stddev = 1.0 : f64) {weight_decay}
lm.variable @l0.q.weight.compute compute_copy : tensor<4x4xbf16> init copy_of(source = "l0.q.weight") {parameter = "l0.q.weight"}
lm.variable @l0.q.bias parameter : tensor<4xbf16> init zeros
lm.variable @l0.k.weight parameter : tensor<2x4xf32> init normal(stddev = 2.0 : f64) {weight_decay}
lm.variable @l0.k.weight.compute compute_copy : tensor<2x4xbf16> init copy_of(source = "l0.k.weight") {parameter = "l0.k.weight"}
lm.variable @l0.k.bias parameter : tensor<2xbf16> init zeros
lm.variable @l0.v.weight parameter : tensor<2x4xf32> init normal(stddev = 3.0 : f64) {weight_decay}
lm.variable @l0.v.weight.compute compute_copy : tensor<2x4xbf16> init copy_of(source = "l0.v.weight") {parameter = "l0.v.weight"}
lm.variable @l0.v.bias parameter : tensor<2xbf16> init zeros
lm.variable @l1.q.weight parameter : tensor<4x4xf32> init normal(stddev = 1.0 : f64) {weight_decay}
lm.variable @l1.q.weight.compute compute_copy : tensor<4x4xbf16> init copy_of(source = "l1.q.weight") {parameter = "l1.q.weight"}
lm.variable @l1.q.bias parameter : tensor<4xbf16> init zeros
lm.variable @l1.k.weight parameter : tensor<2x4xf32> init normal(stddev = 2.0 : f64) {weight_decay}
lm.variable @l1.k.weight.compute compute_copy : tensor<2x4xbf16> init copy_of(source = "l1.k.weight") {parameter = "l1.k.weight"}
lm.variable @l1.k.bias parameter : tensor<2xbf16> init zeros
lm.variable @l1.v.weight parameter : tensor<2x4xf32> init normal(stddev = 3.0 : f64) {weight_decay}
lm.variable @l1.v.weight.compute compute_copy : tensor<2x4xbf16> init copy_of(source = "l1.v.weight") {parameter = "l1.v.weight"}
lm.variable @l1.v.bias parameter : tensor<2xbf16> init zeros
func.func private @layer(%x: tensor<6x4xbf16>, %cos: tensor<6x1xf32>,
    %wq: tensor<4x4xbf16>, %bq: tensor<4xbf16>, %wk: tensor<2x4xbf16>, %bk: tensor<2xbf16>,
    %wv: tensor<2x4xbf16>, %bv: tensor<2xbf16>) -> tensor<6x4xbf16> {
  %q = lm.linear %x, %wq bias %bq : (tensor<6x4xbf16>, tensor<4x4xbf16>, tensor<4xbf16>) -> tensor<6x4xbf16>
  %p = lm.rope %q, %cos, %cos head_dim 2 : (tensor<6x4xbf16>, tensor<6x1xf32>, tensor<6x1xf32>) -> tensor<6x4xbf16>
  %k = lm.linear %x, %wk bias %bk : (tensor<6x4xbf16>, tensor<2x4xbf16>, tensor<2xbf16>) -> tensor<6x2xbf16>
  %r = lm.rope %k, %cos, %cos head_dim 2 : (tensor<6x2xbf16>, tensor<6x1xf32>, tensor<6x1xf32>) -> tensor<6x2xbf16>
  %v = lm.linear %x, %wv bias %bv : (tensor<6x4xbf16>, tensor<2x4xbf16>, tensor<2xbf16>) -> tensor<6x2xbf16>
  %o, %lse = lm.attention %p, %r, %v : (tensor<6x4xbf16>, tensor<6x2xbf16>, tensor<6x2xbf16>) -> (tensor<6x4xbf16>, tensor<6x2xf32>) {head_dim = 2 : i64, seq = 6 : i64, scale = 0.5 : f64}
  return %o : tensor<6x4xbf16>
}
func.func @forward() -> tensor<6x4xbf16> {
  %x = lm.load @x : tensor<6x4xbf16>
  %cos = lm.load @cos : tensor<6x1xf32>
  %w0q = lm.load @l0.q.weight.compute : tensor<4x4xbf16>
  %b0q = lm.load @l0.q.bias : tensor<4xbf16>
  %w0k = lm.load @l0.k.weight.compute : tensor<2x4xbf16>
  %b0k = lm.load @l0.k.bias : tensor<2xbf16>
  %w0v = lm.load @l0.v.weight.compute : tensor<2x4xbf16>
  %b0v = lm.load @l0.v.bias : tensor<2xbf16>
  %y0 = call @layer(%x, %cos, %w0q, %b0q, %w0k, %b0k, %w0v, %b0v) : (tensor<6x4xbf16>, tensor<6x1xf32>, tensor<4x4xbf16>, tensor<4xbf16>, tensor<2x4xbf16>, tensor<2xbf16>, tensor<2x4xbf16>, tensor<2xbf16>) -> tensor<6x4xbf16>
  %w1q = lm.load @l1.q.weight.compute : tensor<4x4xbf16>
  %b1q = lm.load @l1.q.bias : tensor<4xbf16>
  %w1k = lm.load @l1.k.weight.compute : tensor<2x4xbf16>
  %b1k = lm.load @l1.k.bias : tensor<2xbf16>
  %w1v = lm.load @l1.v.weight.compute : tensor<2x4xbf16>
  %b1v = lm.load @l1.v.bias : tensor<2xbf16>
  %y1 = call @layer(%y0, %cos, %w1q, %b1q, %w1k, %b1k, %w1v, %b1v) : (tensor<6x4xbf16>, tensor<6x1xf32>, tensor<4x4xbf16>, tensor<4xbf16>, tensor<2x4xbf16>, tensor<2xbf16>, tensor<2x4xbf16>, tensor<2xbf16>) -> tensor<6x4xbf16>
  return %y1 : tensor<6x4xbf16>
}

// -----

// A weight that something else reads keeps its place, and so does one with another decay.
// CHECK-LABEL: func.func private @shared(
// CHECK-COUNT-2: lm.linear
// CHECK-NOT:     lm.split
lm.variable @a parameter : tensor<2x4xf32> init zeros
lm.variable @b parameter : tensor<2x4xf32> init zeros
lm.variable @c parameter : tensor<2x4xf32> init zeros {weight_decay}
func.func private @shared(%x: tensor<6x4xf32>, %a: tensor<2x4xf32>, %b: tensor<2x4xf32>) -> (tensor<6x2xf32>, tensor<6x2xf32>) {
  %p = lm.linear %x, %a : (tensor<6x4xf32>, tensor<2x4xf32>) -> tensor<6x2xf32>
  %q = lm.linear %x, %b : (tensor<6x4xf32>, tensor<2x4xf32>) -> tensor<6x2xf32>
  return %p, %q : tensor<6x2xf32>, tensor<6x2xf32>
}
// CHECK-LABEL: func.func private @decay(
// CHECK-COUNT-2: lm.linear
// CHECK-NOT:     lm.split
func.func private @decay(%x: tensor<6x4xf32>, %a: tensor<2x4xf32>, %b: tensor<2x4xf32>) -> (tensor<6x2xf32>, tensor<6x2xf32>) {
  %p = lm.linear %x, %a : (tensor<6x4xf32>, tensor<2x4xf32>) -> tensor<6x2xf32>
  %q = lm.linear %x, %b : (tensor<6x4xf32>, tensor<2x4xf32>) -> tensor<6x2xf32>
  return %p, %q : tensor<6x2xf32>, tensor<6x2xf32>
}
func.func @forward(%x: tensor<6x4xf32>) -> tensor<6x2xf32> {
  %a = lm.load @a : tensor<2x4xf32>
  %b = lm.load @b : tensor<2x4xf32>
  %b1 = lm.load @b : tensor<2x4xf32>
  %c = lm.load @c : tensor<2x4xf32>
  %p, %q = call @shared(%x, %a, %b) : (tensor<6x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) -> (tensor<6x2xf32>, tensor<6x2xf32>)
  %r, %s = call @decay(%x, %b1, %c) : (tensor<6x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) -> (tensor<6x2xf32>, tensor<6x2xf32>)
  %t = lm.add %p, %q : tensor<6x2xf32>
  %u = lm.add %t, %r : tensor<6x2xf32>
  return %u : tensor<6x2xf32>
}

// -----

// A variable that two calls would put at different places keeps its own.
// CHECK-LABEL: func.func private @swapped(
// CHECK-COUNT-2: lm.linear
// CHECK-NOT:     lm.split
lm.variable @a parameter : tensor<2x4xf32> init zeros
lm.variable @b parameter : tensor<2x4xf32> init zeros
func.func private @swapped(%x: tensor<6x4xf32>, %a: tensor<2x4xf32>, %b: tensor<2x4xf32>) -> (tensor<6x2xf32>, tensor<6x2xf32>) {
  %p = lm.linear %x, %a : (tensor<6x4xf32>, tensor<2x4xf32>) -> tensor<6x2xf32>
  %q = lm.linear %x, %b : (tensor<6x4xf32>, tensor<2x4xf32>) -> tensor<6x2xf32>
  return %p, %q : tensor<6x2xf32>, tensor<6x2xf32>
}
func.func @forward(%x: tensor<6x4xf32>) -> tensor<6x2xf32> {
  %a = lm.load @a : tensor<2x4xf32>
  %b = lm.load @b : tensor<2x4xf32>
  %a1 = lm.load @a : tensor<2x4xf32>
  %b1 = lm.load @b : tensor<2x4xf32>
  %p, %q = call @swapped(%x, %a, %b) : (tensor<6x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) -> (tensor<6x2xf32>, tensor<6x2xf32>)
  %r, %s = call @swapped(%x, %b1, %a1) : (tensor<6x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) -> (tensor<6x2xf32>, tensor<6x2xf32>)
  %t = lm.add %p, %s : tensor<6x2xf32>
  return %t : tensor<6x2xf32>
}
