// Every op and type of the plan dialect prints, parses and prints the same.
// RUN: lmc-opt %s | lmc-opt | FileCheck %s
// RUN: lmc-opt %s --mlir-print-op-generic | lmc-opt | FileCheck %s

// CHECK: plan.arena @state bytes 4096 alignment 64 lower_bound 4000
plan.arena @state bytes 4096 alignment 64 lower_bound 4000
// CHECK: plan.arena @workspace bytes 8192 alignment 64 lower_bound 8192
plan.arena @workspace bytes 8192 alignment 64 lower_bound 8192
// CHECK: plan.variable @w at @state[128] : tensor<8x4xf32> parameter init ones {weight_decay}
plan.variable @w at @state[128] : tensor<8x4xf32> parameter init ones {weight_decay}
// CHECK: plan.variable @w.grad at @state[256] : tensor<8x4xf32> gradient init zeros {parameter = "w"}
plan.variable @w.grad at @state[256] : tensor<8x4xf32> gradient init zeros {parameter = "w"}

// CHECK: plan.function @micro peak 1024 {
plan.function @micro peak 1024 {
  // CHECK: %[[X:.*]] = plan.slice @workspace[64] activations "layers.0/mlp" live[0, 7] : <tensor<8x4xf32>>
  %x = plan.slice @workspace[64] activations "layers.0/mlp" live [0, 7] : !plan.slice<tensor<8x4xf32>>
  // CHECK: %[[IDS:.*]] = plan.slice @workspace[0] temporaries "" live[0, 0] : <tensor<8xi32>>
  %ids = plan.slice @workspace[0] temporaries "" live [0, 0] : !plan.slice<tensor<8xi32>>
  // CHECK: %[[W:.*]] = plan.variable_ref @w : <tensor<8x4xf32>>{{$}}
  %w = plan.variable_ref @w : !plan.slice<tensor<8x4xf32>>
  // CHECK: %[[G:.*]] = plan.variable_ref @w.grad : <tensor<4x4xf32>> {offset = 64 : i64}
  %g = plan.variable_ref @w.grad : !plan.slice<tensor<4x4xf32>> {offset = 64 : i64}
  // CHECK: plan.launch @double(%[[W]], %[[X]]) inputs 1 items 8 chunk 4 : !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>
  plan.launch @double(%w, %x) inputs 1 items 8 chunk 4 : !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>
  // CHECK: plan.gemm %[[X]], %[[W]] into %[[G]] : !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<4x4xf32>> {transpose_a}
  plan.gemm %x, %w into %g : !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<4x4xf32>> {transpose_a}
  // CHECK: plan.gemm %[[X]], %[[W]] into %[[G]] bias %[[IDS]] workspace %[[X]] : {{.*}} {accumulate, transpose_b}
  plan.gemm %x, %w into %g bias %ids workspace %x : !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<4x4xf32>>, !plan.slice<tensor<8xi32>>, !plan.slice<tensor<8x4xf32>> {accumulate, transpose_b}
  // CHECK: plan.gemm %[[X]], %[[W]] into %[[G]] workspace %[[X]] :
  plan.gemm %x, %w into %g workspace %x : !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<4x4xf32>>, !plan.slice<tensor<8x4xf32>>
  // CHECK: plan.attention %[[X]], %[[X]], %[[X]], %[[W]], %[[G]] : {{.*}} {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 4 : i64, window = 0 : i64}
  plan.attention %x, %x, %x, %w, %g : !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<4x4xf32>> {head_dim = 2 : i64, seq = 4 : i64, scale = 0.5 : f64, window = 0 : i64}
  // CHECK: plan.attention_grad %[[X]], %[[X]], %[[X]], %[[W]], %[[G]], %[[X]], %[[W]], %[[W]], %[[W]] :
  plan.attention_grad %x, %x, %x, %w, %g, %x, %w, %w, %w : !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<4x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>> {head_dim = 2 : i64, seq = 4 : i64, scale = 0.5 : f64, window = 0 : i64}
  // CHECK: plan.attention_grad {{.*}}, %[[W]] workspace %[[X]] :
  plan.attention_grad %x, %x, %x, %w, %g, %x, %w, %w, %w workspace %x : !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<4x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>> {head_dim = 2 : i64, seq = 4 : i64, scale = 0.5 : f64, window = 0 : i64}
  // CHECK: plan.attention {{.*}}, %[[G]] starts %[[IDS]] : {{.*}}, !plan.slice<tensor<8xi32>> {head_dim
  plan.attention %x, %x, %x, %w, %g starts %ids : !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<4x4xf32>>, !plan.slice<tensor<8xi32>> {head_dim = 2 : i64, seq = 4 : i64, scale = 0.5 : f64, window = 0 : i64}
  // CHECK: plan.attention_grad {{.*}}, %[[W]] starts %[[IDS]] : {{.*}}, !plan.slice<tensor<8xi32>> {head_dim
  plan.attention_grad %x, %x, %x, %w, %g, %x, %w, %w, %w starts %ids : !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<4x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8xi32>> {head_dim = 2 : i64, seq = 4 : i64, scale = 0.5 : f64, window = 0 : i64}
  // CHECK: plan.attention_grad {{.*}}, %[[W]] starts %[[IDS]] workspace %[[X]] :
  plan.attention_grad %x, %x, %x, %w, %g, %x, %w, %w, %w starts %ids workspace %x : !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<4x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8xi32>>, !plan.slice<tensor<8x4xf32>> {head_dim = 2 : i64, seq = 4 : i64, scale = 0.5 : f64, window = 0 : i64}
  // CHECK: plan.attention_grad {{.*}}, %[[W]] starts %[[IDS]] rope %[[G]], %[[G]] workspace %[[X]] :
  plan.attention_grad %x, %x, %x, %w, %g, %x, %w, %w, %w starts %ids rope %g, %g workspace %x : !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<4x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8xi32>>, !plan.slice<tensor<4x4xf32>>, !plan.slice<tensor<4x4xf32>>, !plan.slice<tensor<8x4xf32>> {head_dim = 2 : i64, seq = 4 : i64, scale = 0.5 : f64, window = 0 : i64}
  // CHECK: plan.scatter_add %[[IDS]], %[[X]] into %[[W]] : !plan.slice<tensor<8xi32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>> {accumulate}
  plan.scatter_add %ids, %x into %w : !plan.slice<tensor<8xi32>>, !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>> {accumulate}
  // CHECK: plan.copy %[[X]] into %[[W]] : !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>
  plan.copy %x into %w : !plan.slice<tensor<8x4xf32>>, !plan.slice<tensor<8x4xf32>>
}
