// Every op and type of the plan dialect prints, parses and prints the same.
// RUN: lmc-opt %s | lmc-opt | FileCheck %s
// RUN: lmc-opt %s --mlir-print-op-generic | lmc-opt | FileCheck %s

// CHECK: plan.arena @state bytes 4096 alignment 64 lower_bound 4000
plan.arena @state bytes 4096 alignment 64 lower_bound 4000
// CHECK: plan.arena @workspace bytes 8192 alignment 64 lower_bound 8192
plan.arena @workspace bytes 8192 alignment 64 lower_bound 8192
// CHECK: plan.variable @w at @state[128] : tensor<8x4xf32> parameter init ones {weight_decay}
plan.variable @w at @state[128] : tensor<8x4xf32> parameter init ones {weight_decay}
// CHECK: plan.variable @b at @state[384] : tensor<8xf32> parameter init ones {group = #lm.group<name = "slow">}
plan.variable @b at @state[384] : tensor<8xf32> parameter init ones {group = #lm.group<name = "slow">}
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
  // CHECK: %[[B:.*]] = plan.slice @workspace[32] temporaries "" live[0, 0] : <tensor<4xf32>>
  %b = plan.slice @workspace[32] temporaries "" live [0, 0] : !plan.slice<tensor<4xf32>>
  // The comment of a line gives the role, the place and the bytes of the slice.
  // CHECK:      plan.launch @double items 8 chunk 4 (
  // CHECK-NEXT:   in {{ *}}%[[W]] : tensor<8x4xf32> {{ *}}// reads   @w[0], 128 bytes{{$}}
  // CHECK-NEXT:   out {{ *}}%[[X]] : tensor<8x4xf32> {{ *}}// writes  @workspace[64], 128 bytes{{$}}
  // CHECK-NEXT: )
  plan.launch @double items 8 chunk 4 (
    in %w : tensor<8x4xf32>
    out %x : tensor<8x4xf32>
  )
  // CHECK:      plan.launch @none items 1 chunk 1 {backward, layer = 3 : i64} (
  // CHECK-NEXT: )
  plan.launch @none items 1 chunk 1 {backward, layer = 3 : i64} ()
  // CHECK: plan.gemm {transpose_a} (
  // CHECK-NEXT: a {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: b {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: d {{ *}}%[[G]] : tensor<4x4xf32>
  // CHECK-NEXT: )
  plan.gemm {transpose_a} (
    a %x : tensor<8x4xf32>
    b %w : tensor<8x4xf32>
    d %g : tensor<4x4xf32>
  )
  // CHECK: plan.gemm {accumulate, transpose_b} (
  // CHECK-NEXT: a {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: b {{ *}}%[[G]] : tensor<4x4xf32>
  // CHECK-NEXT: bias {{ *}}%[[B]] : tensor<4xf32>
  // CHECK-NEXT: d {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: workspace {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: )
  plan.gemm {accumulate, transpose_b} (
    a %x : tensor<8x4xf32>
    b %g : tensor<4x4xf32>
    bias %b : tensor<4xf32>
    d %w : tensor<8x4xf32>
    workspace %x : tensor<8x4xf32>
  )
  // CHECK: plan.gemm (
  // CHECK-NEXT: a {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: b {{ *}}%[[G]] : tensor<4x4xf32>
  // CHECK-NEXT: d {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: workspace {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: )
  plan.gemm (
    a %x : tensor<8x4xf32>
    b %g : tensor<4x4xf32>
    d %w : tensor<8x4xf32>
    workspace %x : tensor<8x4xf32>
  )
  // CHECK: plan.attention {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 4 : i64, window = 0 : i64} (
  // CHECK-NEXT: q {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: k {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: v {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: out {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: lse {{ *}}%[[G]] : tensor<4x4xf32>
  // CHECK-NEXT: )
  plan.attention {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 4 : i64, window = 0 : i64} (
    q %x : tensor<8x4xf32>
    k %x : tensor<8x4xf32>
    v %x : tensor<8x4xf32>
    out %w : tensor<8x4xf32>
    lse %g : tensor<4x4xf32>
  )
  // CHECK: plan.attention {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 4 : i64, window = 0 : i64} (
  // CHECK-NEXT: q {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: k {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: v {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: starts {{ *}}%[[IDS]] : tensor<8xi32>
  // CHECK-NEXT: out {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: lse {{ *}}%[[G]] : tensor<4x4xf32>
  // CHECK-NEXT: )
  plan.attention {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 4 : i64, window = 0 : i64} (
    q %x : tensor<8x4xf32>
    k %x : tensor<8x4xf32>
    v %x : tensor<8x4xf32>
    starts %ids : tensor<8xi32>
    out %w : tensor<8x4xf32>
    lse %g : tensor<4x4xf32>
  )
  // CHECK: plan.attention_grad {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 4 : i64, window = 0 : i64} (
  // CHECK-NEXT: q {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: k {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: v {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: out {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: lse {{ *}}%[[G]] : tensor<4x4xf32>
  // CHECK-NEXT: dout {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: dq {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: dk {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: dv {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: )
  plan.attention_grad {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 4 : i64, window = 0 : i64} (
    q %x : tensor<8x4xf32>
    k %x : tensor<8x4xf32>
    v %x : tensor<8x4xf32>
    out %w : tensor<8x4xf32>
    lse %g : tensor<4x4xf32>
    dout %x : tensor<8x4xf32>
    dq %w : tensor<8x4xf32>
    dk %w : tensor<8x4xf32>
    dv %w : tensor<8x4xf32>
  )
  // CHECK: plan.attention_grad {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 4 : i64, window = 0 : i64} (
  // CHECK-NEXT: q {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: k {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: v {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: out {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: lse {{ *}}%[[G]] : tensor<4x4xf32>
  // CHECK-NEXT: dout {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: dq {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: dk {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: dv {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: workspace {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: )
  plan.attention_grad {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 4 : i64, window = 0 : i64} (
    q %x : tensor<8x4xf32>
    k %x : tensor<8x4xf32>
    v %x : tensor<8x4xf32>
    out %w : tensor<8x4xf32>
    lse %g : tensor<4x4xf32>
    dout %x : tensor<8x4xf32>
    dq %w : tensor<8x4xf32>
    dk %w : tensor<8x4xf32>
    dv %w : tensor<8x4xf32>
    workspace %x : tensor<8x4xf32>
  )
  // CHECK: plan.attention_grad {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 4 : i64, window = 0 : i64} (
  // CHECK-NEXT: q {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: k {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: v {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: out {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: lse {{ *}}%[[G]] : tensor<4x4xf32>
  // CHECK-NEXT: dout {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: starts {{ *}}%[[IDS]] : tensor<8xi32>
  // CHECK-NEXT: dq {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: dk {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: dv {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: )
  plan.attention_grad {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 4 : i64, window = 0 : i64} (
    q %x : tensor<8x4xf32>
    k %x : tensor<8x4xf32>
    v %x : tensor<8x4xf32>
    out %w : tensor<8x4xf32>
    lse %g : tensor<4x4xf32>
    dout %x : tensor<8x4xf32>
    starts %ids : tensor<8xi32>
    dq %w : tensor<8x4xf32>
    dk %w : tensor<8x4xf32>
    dv %w : tensor<8x4xf32>
  )
  // CHECK: plan.attention_grad {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 4 : i64, window = 0 : i64} (
  // CHECK-NEXT: q {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: k {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: v {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: out {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: lse {{ *}}%[[G]] : tensor<4x4xf32>
  // CHECK-NEXT: dout {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: starts {{ *}}%[[IDS]] : tensor<8xi32>
  // CHECK-NEXT: cos {{ *}}%[[G]] : tensor<4x4xf32>
  // CHECK-NEXT: sin {{ *}}%[[G]] : tensor<4x4xf32>
  // CHECK-NEXT: dq {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: dk {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: dv {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: workspace {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: )
  plan.attention_grad {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 4 : i64, window = 0 : i64} (
    q %x : tensor<8x4xf32>
    k %x : tensor<8x4xf32>
    v %x : tensor<8x4xf32>
    out %w : tensor<8x4xf32>
    lse %g : tensor<4x4xf32>
    dout %x : tensor<8x4xf32>
    starts %ids : tensor<8xi32>
    cos %g : tensor<4x4xf32>
    sin %g : tensor<4x4xf32>
    dq %w : tensor<8x4xf32>
    dk %w : tensor<8x4xf32>
    dv %w : tensor<8x4xf32>
    workspace %x : tensor<8x4xf32>
  )
  // CHECK: plan.scatter_add {accumulate} (
  // CHECK-NEXT: ids {{ *}}%[[IDS]] : tensor<8xi32>
  // CHECK-NEXT: x {{ *}}%[[X]] : tensor<8x4xf32>
  // CHECK-NEXT: d {{ *}}%[[W]] : tensor<8x4xf32>
  // CHECK-NEXT: )
  plan.scatter_add {accumulate} (
    ids %ids : tensor<8xi32>
    x %x : tensor<8x4xf32>
    d %w : tensor<8x4xf32>
  )
  // Columns of a wider tensor are rows with a pitch. What the lines repeat is a comment, so that a
  // location can follow.
  // CHECK:      %[[C:.*]] = plan.variable_ref @w : <tensor<8x2xf32>> {offset = 8 : i64, pitch = 16 : i64, rows = 8 : i64}
  // CHECK-NEXT: plan.copy (
  // CHECK-NEXT:   x {{ *}}%[[C]] : tensor<8x2xf32> {{ *}}// reads   @w[8], 64 bytes in 8 rows, 16 bytes apart{{$}}
  // CHECK-NEXT:   d {{ *}}%[[C]] : tensor<8x2xf32> {{ *}}// writes  @w[8], 64 bytes in 8 rows, 16 bytes apart{{$}}
  // CHECK-NEXT: )
  %c = plan.variable_ref @w : !plan.slice<tensor<8x2xf32>> {offset = 8 : i64, pitch = 16 : i64, rows = 8 : i64}
  plan.copy (
    x %c : tensor<8x2xf32>
    d %c : tensor<8x2xf32>
  ) loc("columns")
}
