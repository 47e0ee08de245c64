// dist-shard-state keeps parameters of different optimizer groups in different units. A unit has the group of its members, and is a vector
// where its group wants f32 moments and the optimizer has others.
// RUN: lmc-opt %s --dist-shard-state="shard=2 stage=weights" | FileCheck %s
// RUN: lmc-opt %s --dist-shard-state="shard=2 stage=weights optimizer=adamw8bit" | FileCheck %s --check-prefix=CODED

// CHECK: lm.variable @unit.0 parameter : tensor<2x256xf32> init none {group = #lm.group<name = "exact", own_decay = true, f32_moments = true>, sharded = [#lm.sharded<"a",
// CHECK: lm.variable @unit.1 parameter : tensor<2x256xf32> init none {sharded = [#lm.sharded<"b",
// CHECK: lm.variable @unit.2 parameter {{.*}} {group = #lm.group<name = "slow">, sharded = [#lm.sharded<"v",
// CHECK-NOT: lm.variable @unit.3

// CODED: lm.variable @unit.0 parameter : tensor<512xf32>
// CODED: lm.variable @unit.1 parameter : tensor<2x256xf32>
lm.variable @x input : tensor<8x32xf32> init none
lm.variable @a parameter : tensor<32x32xf32> init ones {weight_decay, group = #lm.group<name = "exact", own_decay = true, f32_moments = true>}
lm.variable @a.grad gradient : tensor<32x32xf32> init zeros {parameter = "a"}
lm.variable @b parameter : tensor<32x32xf32> init ones {weight_decay}
lm.variable @b.grad gradient : tensor<32x32xf32> init zeros {parameter = "b"}
lm.variable @v parameter : tensor<32xf32> init ones {group = #lm.group<name = "slow">}
lm.variable @v.grad gradient : tensor<32xf32> init zeros {parameter = "v"}

func.func private @layer(%x: tensor<8x32xf32>, %a: tensor<32x32xf32>, %b: tensor<32x32xf32>) -> tensor<8x32xf32> {
  %y = lm.linear %x, %a : (tensor<8x32xf32>, tensor<32x32xf32>) -> tensor<8x32xf32>
  %z = lm.linear %y, %b : (tensor<8x32xf32>, tensor<32x32xf32>) -> tensor<8x32xf32>
  return %z : tensor<8x32xf32>
}
func.func @micro() {
  %x = lm.load @x : tensor<8x32xf32>
  %a = lm.load @a : tensor<32x32xf32>
  %b = lm.load @b : tensor<32x32xf32>
  %y = call @layer(%x, %a, %b) {lm.layer = 0} : (tensor<8x32xf32>, tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<8x32xf32>
  %da = lm.matmul %y, %x : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<32x32xf32> {backward, transpose_a}
  lm.accumulate %da, @a.grad : tensor<32x32xf32>
  lm.accumulate %da, @b.grad : tensor<32x32xf32>
  %v = lm.load @v : tensor<32xf32>
  %dv = lm.add %v, %v : tensor<32xf32>
  lm.accumulate %dv, @v.grad : tensor<32xf32>
  return
}
