// dist-parallel-experts gives each of two neighbours half of the experts, and lets them exchange their tokens.
// RUN: lmc-opt %s --dist-parallel-experts="replicate=1 shard=4 experts=2" | FileCheck %s
// RUN: lmc-opt %s --dist-parallel-experts="shard=2 experts=2 capacity=1" | FileCheck %s --check-prefix=WINDOWS
// RUN: not lmc-opt %s --dist-parallel-experts="shard=2 experts=2 capacity=0.5" 2>&1 | FileCheck %s --check-prefix=CAPACITY
// RUN: lmc-opt %s --dist-parallel-experts="shard=2 experts=1" | FileCheck %s --check-prefix=ONE
// RUN: not lmc-opt %s --dist-parallel-experts="shard=3 experts=3" 2>&1 | FileCheck %s --check-prefix=UNEVEN
// RUN: not lmc-opt %s --dist-parallel-experts="shard=4 experts=3" 2>&1 | FileCheck %s --check-prefix=RANKS

lm.variable @x input : tensor<6x8xf32> init none
lm.variable @logits input : tensor<6x4xf32> init none
lm.variable @w parameter : tensor<12x8xf32> init none {parts = [
  #lm.part<"0.w", rows = 3, init = ones>, #lm.part<"1.w", rows = 3, init = ones>,
  #lm.part<"2.w", rows = 3, init = ones>, #lm.part<"3.w", rows = 3, init = ones>]}
lm.variable @gate_up.w parameter : tensor<24x8xf32> init none
lm.variable @w.compute compute_copy : tensor<12x8xf32> init copy_of(source = "w") {parameter = "w"}

func.func private @layer(%x: tensor<6x8xf32>, %logits: tensor<6x4xf32>, %w: tensor<12x8xf32>) -> tensor<6x3xf32> {
  %p, %e, %c, %m = lm.route %logits : (tensor<6x4xf32>) -> (tensor<6x3xf32>, tensor<6x3xi32>, tensor<4xf32>, tensor<4xf32>)
  %o, %r, %q = lm.sort_rows %e : (tensor<6x3xi32>) -> (tensor<5xi32>, tensor<18xi32>, tensor<18xi32>)
  %t = lm.take_rows %x, %r, %q : (tensor<6x8xf32>, tensor<18xi32>, tensor<18xi32>) -> tensor<18x8xf32>
  %y = lm.expert_linear %t, %w, %o : (tensor<18x8xf32>, tensor<12x8xf32>, tensor<5xi32>) -> tensor<18x3xf32>
  %d = lm.combine_rows %y, %p, %r, %q : (tensor<18x3xf32>, tensor<6x3xf32>, tensor<18xi32>, tensor<18xi32>) -> tensor<6x3xf32>
  return %d : tensor<6x3xf32>
}
// SwiGLU of the halves of a product.
func.func @swiglu(%x: tensor<6x8xf32>, %logits: tensor<6x4xf32>) -> tensor<6x3xf32> {
  %gate_up.w = lm.load @gate_up.w : tensor<24x8xf32>
  %p, %e, %c, %m = lm.route %logits : (tensor<6x4xf32>) -> (tensor<6x3xf32>, tensor<6x3xi32>, tensor<4xf32>, tensor<4xf32>)
  %o, %r, %q = lm.sort_rows %e : (tensor<6x3xi32>) -> (tensor<5xi32>, tensor<18xi32>, tensor<18xi32>)
  %t = lm.take_rows %x, %r, %q : (tensor<6x8xf32>, tensor<18xi32>, tensor<18xi32>) -> tensor<18x8xf32>
  %gate_up = lm.expert_linear %t, %gate_up.w, %o : (tensor<18x8xf32>, tensor<24x8xf32>, tensor<5xi32>) -> tensor<18x6xf32>
  %gate, %up = lm.split %gate_up : (tensor<18x6xf32>) -> (tensor<18x3xf32>, tensor<18x3xf32>)
  %y = lm.swiglu %gate, %up : tensor<18x3xf32>
  %d = lm.combine_rows %y, %p, %r, %q : (tensor<18x3xf32>, tensor<6x3xf32>, tensor<18xi32>, tensor<18xi32>) -> tensor<6x3xf32>
  return %d : tensor<6x3xf32>
}
func.func @forward() -> tensor<6x3xf32> {
  %x = lm.load @x : tensor<6x8xf32>
  %logits = lm.load @logits : tensor<6x4xf32>
  %w = lm.load @w.compute : tensor<12x8xf32>
  %y = call @layer(%x, %logits, %w) {lm.layer = 0} : (tensor<6x8xf32>, tensor<6x4xf32>, tensor<12x8xf32>) -> tensor<6x3xf32>
  return %y : tensor<6x3xf32>
}

// CHECK:      dist.mesh @ranks(replicate = 1, shard = 4, experts = 2)
// CHECK:      lm.variable @run.shard_rank scalar : tensor<f32> init none step_value shard_rank
// The parts stay those of all experts.
// CHECK:      lm.variable @w parameter : tensor<6x8xf32>
// CHECK-SAME:   groups = 2
// CHECK-SAME:   #lm.part<"3.w", rows = 3, init = ones>
// CHECK:      lm.variable @w.compute compute_copy : tensor<6x8xf32> {{.*}}groups = 2
// CHECK:      func.func private @layer(%[[X:.*]]: tensor<6x8xf32>, %[[L:.*]]: tensor<6x4xf32>, %[[W:.*]]: tensor<6x8xf32>, %[[RANK:.*]]: tensor<f32>)
// The tokens are on their way while the router computes.
// CHECK-NEXT:   %[[XS:.*]] = dist.all_gather %[[X]] over @ranks expert : (tensor<6x8xf32>) -> tensor<12x8xf32>
// CHECK-NEXT:   %[[P:.*]], %[[E:.*]], %{{.*}}, %{{.*}} = lm.route %[[L]]
// CHECK-DAG:    %[[PS:.*]] = dist.all_gather %[[P]] over @ranks expert : (tensor<6x3xf32>) -> tensor<12x3xf32>
// CHECK-DAG:    %[[ES:.*]] = dist.all_gather %[[E]] over @ranks expert : (tensor<6x3xi32>) -> tensor<12x3xi32>
// Of its three choices, a token may have two on this rank's two experts: 12 x 2 rows.
// CHECK:        %[[O:.*]], %[[R:.*]], %[[Q:.*]] = lm.sort_rows %[[ES]] of %[[RANK]] : (tensor<12x3xi32>, tensor<f32>) -> (tensor<3xi32>, tensor<24xi32>, tensor<36xi32>) {groups = 2 : i64}
// CHECK-NEXT:   %[[T:.*]] = lm.take_rows %[[XS]], %[[R]], %[[Q]] : ({{.*}}) -> tensor<24x8xf32>
// CHECK-NEXT:   %[[Y:.*]] = lm.expert_linear %[[T]], %[[W]], %[[O]] : (tensor<24x8xf32>, tensor<6x8xf32>, tensor<3xi32>) -> tensor<24x3xf32>
// CHECK-NEXT:   %[[D:.*]] = lm.combine_rows %[[Y]], %[[PS]], %[[R]], %[[Q]] : ({{.*}}) -> tensor<12x3xf32>
// CHECK-NEXT:   %[[SUM:.*]] = dist.reduce_scatter %[[D]] over @ranks expert : (tensor<12x3xf32>) -> tensor<6x3xf32>
// CHECK-NEXT:   return %[[SUM]]
// SwiGLU is computed of the rows that have an expert.
// CHECK:      func.func @swiglu
// CHECK:        %[[O:.*]], %{{.*}}, %{{.*}} = lm.sort_rows
// CHECK:        %[[GU:.*]] = lm.expert_linear %{{.*}}, %{{.*}}, %[[O]] : (tensor<24x8xf32>, tensor<12x8xf32>, tensor<3xi32>) -> tensor<24x6xf32>
// CHECK-NEXT:   %[[Y:.*]] = lm.expert_swiglu %[[GU]], %[[O]] : (tensor<24x6xf32>, tensor<3xi32>) -> tensor<24x3xf32>
// CHECK-NEXT:   lm.combine_rows %[[Y]]
// CHECK:      func.func @forward
// CHECK:        %[[WHALF:.*]] = lm.load @w.compute : tensor<6x8xf32>
// CHECK:        %[[K:.*]] = lm.load @run.shard_rank : tensor<f32>
// CHECK:        call @layer(%{{.*}}, %{{.*}}, %[[WHALF]], %[[K]])

// ONE:      dist.mesh @ranks(replicate = 1, shard = 2)
// ONE-NOT:  dist.all_gather
// ONE:      lm.sort_rows %{{.*}} : (tensor<6x3xi32>)
// ONE:      lm.swiglu

// UNEVEN: error: 'lm.sort_rows' op sorts by 4 experts, which 3 ranks cannot divide evenly
// RANKS: error: needs at least one rank along each axis, and experts that divide shard
// CAPACITY: error: needs a capacity of at least 1, or 0

// A rank's own tokens have 18 choices; a window of as many rows, and one of the other 6.
// WINDOWS:      %[[O:.*]], %[[R:.*]], %[[Q:.*]] = lm.sort_rows %[[E:.*]] of %[[K:.*]] : {{.*}} -> (tensor<3xi32>, tensor<18xi32>, tensor<36xi32>) {groups = 2 : i64}
// WINDOWS-NEXT: %[[T:.*]] = lm.take_rows %[[X:.*]], %[[R]], %[[Q]] : ({{.*}}) -> tensor<18x8xf32>
// WINDOWS-NEXT: %[[Y:.*]] = lm.expert_linear %[[T]], %[[W:.*]], %[[O]] : ({{.*}}) -> tensor<18x3xf32>
// WINDOWS-NEXT: %[[D:.*]] = lm.combine_rows %[[Y]], %[[P:.*]], %[[R]], %[[Q]] : ({{.*}}) -> tensor<12x3xf32>
// WINDOWS-NEXT: %[[O2:.*]], %[[R2:.*]], %[[Q2:.*]] = lm.sort_rows %[[E]] of %[[K]] : {{.*}} -> (tensor<3xi32>, tensor<6xi32>, tensor<36xi32>) {first = 18 : i64, groups = 2 : i64}
// WINDOWS-NEXT: %[[T2:.*]] = lm.take_rows %[[X]], %[[R2]], %[[Q2]] : ({{.*}}) -> tensor<6x8xf32>
// WINDOWS-NEXT: %[[Y2:.*]] = lm.expert_linear %[[T2]], %[[W]], %[[O2]] : ({{.*}}) -> tensor<6x3xf32>
// WINDOWS-NEXT: %[[D2:.*]] = lm.combine_rows %[[Y2]], %[[P]], %[[R2]], %[[Q2]] : ({{.*}}) -> tensor<12x3xf32>
// WINDOWS-NEXT: %[[SUM:.*]] = lm.add %[[D]], %[[D2]]
// WINDOWS-NEXT: dist.reduce_scatter %[[SUM]] over @ranks expert
