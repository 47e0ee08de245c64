// lm-merge-linears keeps parameters of different optimizer groups apart, and reports it; those of one group are merged, and so is their variable.
// RUN: lmc-opt %s --lm-merge-linears=print-report | FileCheck %s

// CHECK: fusions: 1
// CHECK-NEXT: refused siblings in layer: q_proj, v_proj, would save 96 bytes and {{.*}} us, times 1: their parameters are of different groups of the optimizer

// CHECK-DAG: lm.variable @"0.q+k.w" parameter : tensor<4x4xf32> init none {group = #lm.group<name = "qk">, parts = [#lm.part<"0.q.w", rows = 2, init = zeros>, #lm.part<"0.k.w", rows = 2, init = zeros>]}
// CHECK-DAG: lm.variable @"0.v.w" parameter : tensor<2x4xf32> init zeros
// In the second layer all are of one group, but the function is shared.
// CHECK-DAG: lm.variable @"1.q+k.w" parameter : tensor<4x4xf32> init none {parts
// CHECK-DAG: lm.variable @"1.v.w" parameter : tensor<2x4xf32> init zeros
// CHECK-LABEL: func.func private @layer(
// CHECK:         lm.linear {{.*}} -> tensor<6x4xf32>
// CHECK-NEXT:    lm.split
// CHECK:         lm.linear {{.*}} -> tensor<6x2xf32>
lm.variable @"0.q.w" parameter : tensor<2x4xf32> init zeros {group = #lm.group<name = "qk">}
lm.variable @"0.k.w" parameter : tensor<2x4xf32> init zeros {group = #lm.group<name = "qk">}
lm.variable @"0.v.w" parameter : tensor<2x4xf32> init zeros
lm.variable @"1.q.w" parameter : tensor<2x4xf32> init zeros
lm.variable @"1.k.w" parameter : tensor<2x4xf32> init zeros
lm.variable @"1.v.w" parameter : tensor<2x4xf32> init zeros
func.func private @layer(%x: tensor<6x4xf32>, %q: tensor<2x4xf32>, %k: tensor<2x4xf32>, %v: tensor<2x4xf32>) -> tensor<6x4xf32> {
  %a = lm.linear %x, %q : (tensor<6x4xf32>, tensor<2x4xf32>) -> tensor<6x2xf32> loc("q_proj")
  %b = lm.linear %x, %k : (tensor<6x4xf32>, tensor<2x4xf32>) -> tensor<6x2xf32> loc("k_proj")
  %c = lm.linear %x, %v : (tensor<6x4xf32>, tensor<2x4xf32>) -> tensor<6x2xf32> loc("v_proj")
  %s = lm.add %a, %b : tensor<6x2xf32>
  %y = lm.join %s, %c : (tensor<6x2xf32>, tensor<6x2xf32>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}
func.func @forward(%x: tensor<6x4xf32>) -> tensor<6x4xf32> {
  %q0 = lm.load @"0.q.w" : tensor<2x4xf32>
  %k0 = lm.load @"0.k.w" : tensor<2x4xf32>
  %v0 = lm.load @"0.v.w" : tensor<2x4xf32>
  %y = call @layer(%x, %q0, %k0, %v0) : (tensor<6x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<6x4xf32>
  %q1 = lm.load @"1.q.w" : tensor<2x4xf32>
  %k1 = lm.load @"1.k.w" : tensor<2x4xf32>
  %v1 = lm.load @"1.v.w" : tensor<2x4xf32>
  %z = call @layer(%y, %q1, %k1, %v1) : (tensor<6x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<6x4xf32>
  return %z : tensor<6x4xf32>
}
