// lm-fold-rope: attention's gradients for q and k are rotated back within attention_grad.
// RUN: lmc-opt %s --lm-fold-rope | FileCheck %s

// What lm-merge-linears leaves: both are rotated at once, then all three lie side by side.
// CHECK-LABEL: func.func @merged(
// CHECK-SAME:    %[[G:[^ ]*]]: tensor<4x8xf32>, %[[Q:[^ ]*]]: tensor<4x8xf32>, %[[K:[^ ]*]]: tensor<4x4xf32>, %[[L:[^ ]*]]: tensor<4x4xf32>, %[[COS:[^ ]*]]: tensor<2x1xf32>, %[[SIN:[^ ]*]]: tensor<2x1xf32>)
// CHECK-NEXT:    %[[DQ:.*]], %[[DK:.*]], %[[DV:.*]] = lm.attention_grad %[[G]], %[[Q]], %[[K]], %[[K]], %[[Q]], %[[L]] rope %[[COS]], %[[SIN]] :
// CHECK-NEXT:    %[[D:.*]] = lm.join %[[DQ]], %[[DK]], %[[DV]] : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x16xf32>
// CHECK-NEXT:    return %[[D]]
func.func @merged(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %l: tensor<4x4xf32>, %cos: tensor<2x1xf32>, %sin: tensor<2x1xf32>) -> tensor<4x16xf32> {
  %dq, %dk, %dv = lm.attention_grad %g, %q, %k, %k, %q, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  %x = lm.join %dq, %dk : (tensor<4x8xf32>, tensor<4x4xf32>) -> tensor<4x12xf32>
  %y = lm.rope %x, %cos, %sin head_dim 2 : (tensor<4x12xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x12xf32> {inverse}
  %z = lm.join %y, %dv : (tensor<4x12xf32>, tensor<4x4xf32>) -> tensor<4x16xf32>
  return %z : tensor<4x16xf32>
}

// Each for itself.
// CHECK-LABEL: func.func @apart(
// CHECK:         %[[DQ:.*]], %[[DK:.*]], %{{.*}} = lm.attention_grad {{.*}} rope
// CHECK-NEXT:    return %[[DQ]], %[[DK]]
func.func @apart(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %l: tensor<4x4xf32>, %cos: tensor<2x1xf32>, %sin: tensor<2x1xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {
  %dq, %dk, %dv = lm.attention_grad %g, %q, %k, %k, %q, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  %x = lm.rope %dq, %cos, %sin head_dim 2 : (tensor<4x8xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x8xf32> {inverse}
  %y = lm.rope %dk, %cos, %sin head_dim 2 : (tensor<4x4xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x4xf32> {inverse}
  return %x, %y : tensor<4x8xf32>, tensor<4x4xf32>
}

// Documents too.
// CHECK-LABEL: func.func @documents(
// CHECK:         lm.attention_grad {{.*}} starts %{{.*}} rope %{{.*}}, %{{.*}} :
// CHECK-NOT:     lm.rope
func.func @documents(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %l: tensor<4x4xf32>, %cos: tensor<2x1xf32>, %sin: tensor<2x1xf32>, %starts: tensor<4xi32>) -> tensor<4x12xf32> {
  %dq, %dk, %dv = lm.attention_grad %g, %q, %k, %k, %q, %l starts %starts : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  %x = lm.join %dq, %dk : (tensor<4x8xf32>, tensor<4x4xf32>) -> tensor<4x12xf32>
  %y = lm.rope %x, %cos, %sin head_dim 2 : (tensor<4x12xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x12xf32> {inverse}
  return %y : tensor<4x12xf32>
}

// Something else reads dq as it is.
// CHECK-LABEL: func.func @read_elsewhere(
// CHECK-NOT:     rope %
// CHECK:         lm.rope
func.func @read_elsewhere(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %l: tensor<4x4xf32>, %cos: tensor<2x1xf32>, %sin: tensor<2x1xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>) {
  %dq, %dk, %dv = lm.attention_grad %g, %q, %k, %k, %q, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  %x = lm.rope %dq, %cos, %sin head_dim 2 : (tensor<4x8xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x8xf32> {inverse}
  %y = lm.rope %dk, %cos, %sin head_dim 2 : (tensor<4x4xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x4xf32> {inverse}
  return %x, %dq, %y : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>
}

// dv would be rotated with them.
// CHECK-LABEL: func.func @all_three(
// CHECK:         lm.join
// CHECK-NEXT:    lm.rope
func.func @all_three(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %l: tensor<4x4xf32>, %cos: tensor<2x1xf32>, %sin: tensor<2x1xf32>) -> tensor<4x16xf32> {
  %dq, %dk, %dv = lm.attention_grad %g, %q, %k, %k, %q, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  %x = lm.join %dq, %dk, %dv : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x16xf32>
  %y = lm.rope %x, %cos, %sin head_dim 2 : (tensor<4x16xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x16xf32> {inverse}
  return %y : tensor<4x16xf32>
}

// Other tables for k.
// CHECK-LABEL: func.func @other_tables(
// CHECK-COUNT-2: lm.rope
func.func @other_tables(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %l: tensor<4x4xf32>, %cos: tensor<2x1xf32>, %sin: tensor<2x1xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {
  %dq, %dk, %dv = lm.attention_grad %g, %q, %k, %k, %q, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  %x = lm.rope %dq, %cos, %sin head_dim 2 : (tensor<4x8xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x8xf32> {inverse}
  %y = lm.rope %dk, %sin, %cos head_dim 2 : (tensor<4x4xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x4xf32> {inverse}
  return %x, %y : tensor<4x8xf32>, tensor<4x4xf32>
}
// Other heads than attention has.
// CHECK-LABEL: func.func @other_heads(
// CHECK-COUNT-2: lm.rope
func.func @other_heads(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %l: tensor<4x4xf32>, %cos: tensor<2x2xf32>, %sin: tensor<2x2xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {
  %dq, %dk, %dv = lm.attention_grad %g, %q, %k, %k, %q, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  %x = lm.rope %dq, %cos, %sin head_dim 4 : (tensor<4x8xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<4x8xf32> {inverse}
  %y = lm.rope %dk, %cos, %sin head_dim 4 : (tensor<4x4xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<4x4xf32> {inverse}
  return %x, %y : tensor<4x8xf32>, tensor<4x4xf32>
}

// Positions of a longer sequence.
// CHECK-LABEL: func.func @other_positions(
// CHECK-COUNT-2: lm.rope
func.func @other_positions(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %l: tensor<4x4xf32>, %cos: tensor<4x1xf32>, %sin: tensor<4x1xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {
  %dq, %dk, %dv = lm.attention_grad %g, %q, %k, %k, %q, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  %x = lm.rope %dq, %cos, %sin head_dim 2 : (tensor<4x8xf32>, tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x8xf32> {inverse}
  %y = lm.rope %dk, %cos, %sin head_dim 2 : (tensor<4x4xf32>, tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x4xf32> {inverse}
  return %x, %y : tensor<4x8xf32>, tensor<4x4xf32>
}

// Tables that the kernels do not take.
// CHECK-LABEL: func.func @other_precision(
// CHECK-COUNT-2: lm.rope
func.func @other_precision(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %l: tensor<4x4xf32>, %cos: tensor<2x1xbf16>, %sin: tensor<2x1xbf16>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {
  %dq, %dk, %dv = lm.attention_grad %g, %q, %k, %k, %q, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  %x = lm.rope %dq, %cos, %sin head_dim 2 : (tensor<4x8xf32>, tensor<2x1xbf16>, tensor<2x1xbf16>) -> tensor<4x8xf32> {inverse}
  %y = lm.rope %dk, %cos, %sin head_dim 2 : (tensor<4x4xf32>, tensor<2x1xbf16>, tensor<2x1xbf16>) -> tensor<4x4xf32> {inverse}
  return %x, %y : tensor<4x8xf32>, tensor<4x4xf32>
}

// On the way forward.
// CHECK-LABEL: func.func @forward(
// CHECK-COUNT-2: lm.rope
func.func @forward(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %l: tensor<4x4xf32>, %cos: tensor<2x1xf32>, %sin: tensor<2x1xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {
  %dq, %dk, %dv = lm.attention_grad %g, %q, %k, %k, %q, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  %x = lm.rope %dq, %cos, %sin head_dim 2 : (tensor<4x8xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x8xf32>
  %y = lm.rope %dk, %cos, %sin head_dim 2 : (tensor<4x4xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x4xf32>
  return %x, %y : tensor<4x8xf32>, tensor<4x4xf32>
}
