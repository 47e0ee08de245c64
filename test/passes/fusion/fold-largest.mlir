// lm-fold-largest: attention writes the largest value of each head of a row, where lm.max_abs needs that of its
// result or of its gradient.
// RUN: lmc-opt %s --lm-fold-largest | FileCheck %s
// RUN: lmc-opt %s --lm-fold-largest --kern-convert-lm | FileCheck %s --check-prefix=KERN

// CHECK-LABEL: func.func @forward(
// CHECK-NEXT:    %[[O:.*]], %{{.*}}, %[[L:.*]] = lm.attention %{{.*}} : (tensor<8x16xbf16>, tensor<8x8xbf16>, tensor<8x8xbf16>) -> (tensor<8x16xbf16>, tensor<8x4xf32>, tensor<8x4xf32>) {head_dim = 4 : i64, scale = 5.000000e-01 : f64, seq = 4 : i64, step = "attn"}
// CHECK-NEXT:    %[[M:.*]] = lm.max_abs %[[L]] : (tensor<8x4xf32>) -> tensor<f32>
// CHECK-NEXT:    return %[[O]], %[[M]]
// KERN-LABEL:  func.func @forward(
// KERN:          %[[O:.*]], %{{.*}}, %[[L:.*]] = kern.attention
// KERN:          kern.fusion row_reduction{{.*}}%[[L]]
func.func @forward(%q: tensor<8x16xbf16>, %k: tensor<8x8xbf16>, %v: tensor<8x8xbf16>) -> (tensor<8x16xbf16>, tensor<f32>) {
  %out, %lse = lm.attention %q, %k, %v : (tensor<8x16xbf16>, tensor<8x8xbf16>, tensor<8x8xbf16>) -> (tensor<8x16xbf16>, tensor<8x4xf32>) {head_dim = 4 : i64, seq = 4 : i64, scale = 0.5 : f64, step = "attn"}
  %max = lm.max_abs %out : (tensor<8x16xbf16>) -> tensor<f32>
  return %out, %max : tensor<8x16xbf16>, tensor<f32>
}

// Of dq, dk and dv: 4 + 2 + 2 heads.
// CHECK-LABEL: func.func @gradient(
// CHECK-NEXT:    %[[Q:.*]], %[[K:.*]], %[[V:.*]], %[[L:.*]] = lm.attention_grad %{{.*}} -> (tensor<8x16xbf16>, tensor<8x8xbf16>, tensor<8x8xbf16>, tensor<8x8xf32>) {{.*}}
// CHECK-NEXT:    lm.join %[[Q]], %[[K]], %[[V]]
// CHECK-NEXT:    lm.max_abs %[[L]] : (tensor<8x8xf32>) -> tensor<f32>
// KERN-LABEL:  func.func @gradient(
// KERN:          kern.attention_grad {{.*}} -> (tensor<8x16xbf16>, tensor<8x8xbf16>, tensor<8x8xbf16>, tensor<8x8xf32>)
func.func @gradient(%d: tensor<8x16xbf16>, %q: tensor<8x16xbf16>, %k: tensor<8x8xbf16>, %v: tensor<8x8xbf16>, %lse: tensor<8x4xf32>) -> (tensor<8x32xbf16>, tensor<f32>) {
  %dq, %dk, %dv = lm.attention_grad %d, %q, %k, %v, %q, %lse : (tensor<8x16xbf16>, tensor<8x16xbf16>, tensor<8x8xbf16>, tensor<8x8xbf16>, tensor<8x16xbf16>, tensor<8x4xf32>) -> (tensor<8x16xbf16>, tensor<8x8xbf16>, tensor<8x8xbf16>) {head_dim = 4 : i64, seq = 4 : i64, scale = 0.5 : f64}
  %all = lm.join %dq, %dk, %dv : (tensor<8x16xbf16>, tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x32xbf16>
  %max = lm.max_abs %all : (tensor<8x32xbf16>) -> tensor<f32>
  return %all, %max : tensor<8x32xbf16>, tensor<f32>
}

// Of a part of the gradient, or of what something else computes.
// CHECK-LABEL: func.func @others(
// CHECK-NEXT:    %[[Q:.*]], %[[K:.*]], %[[V:.*]] = lm.attention_grad
// CHECK-NEXT:    %[[J:.*]] = lm.join %[[K]], %[[V]]
// CHECK-NEXT:    lm.max_abs %[[J]]
// CHECK-NEXT:    lm.max_abs %[[Q]]
func.func @others(%d: tensor<8x16xbf16>, %q: tensor<8x16xbf16>, %k: tensor<8x8xbf16>, %v: tensor<8x8xbf16>, %lse: tensor<8x4xf32>) -> (tensor<f32>, tensor<f32>) {
  %dq, %dk, %dv = lm.attention_grad %d, %q, %k, %v, %q, %lse : (tensor<8x16xbf16>, tensor<8x16xbf16>, tensor<8x8xbf16>, tensor<8x8xbf16>, tensor<8x16xbf16>, tensor<8x4xf32>) -> (tensor<8x16xbf16>, tensor<8x8xbf16>, tensor<8x8xbf16>) {head_dim = 4 : i64, seq = 4 : i64, scale = 0.5 : f64}
  %part = lm.join %dk, %dv : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x16xbf16>
  %a = lm.max_abs %part : (tensor<8x16xbf16>) -> tensor<f32>
  %b = lm.max_abs %dq : (tensor<8x16xbf16>) -> tensor<f32>
  return %a, %b : tensor<f32>, tensor<f32>
}
