// Every op of the kern dialect prints, parses and prints the same.
// RUN: lmc-opt %s | lmc-opt | FileCheck %s
// RUN: lmc-opt %s --mlir-print-op-generic | lmc-opt | FileCheck %s

#i = affine_map<(i) -> (i)>
#ij = affine_map<(i, j) -> (i, j)>

// CHECK:      kern.kernel @double elementwise attributes {source_ops = ["lm.add"]} {
// CHECK-NEXT: ^bb0(%[[X:.*]]: tensor<8xf32>):
// CHECK:        %[[Y:.*]] = linalg.generic {{.*}} ins(%[[X]] : tensor<8xf32>)
// CHECK:        kern.yield %[[Y]] : tensor<8xf32>
kern.kernel @double elementwise attributes {source_ops = ["lm.add"]} {
^bb0(%x: tensor<8xf32>):
  %e = tensor.empty() : tensor<8xf32>
  %y = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  kern.yield %y : tensor<8xf32>
}

// The other heroes have names too.
// CHECK: kern.kernel @rows row_reduction {
kern.kernel @rows row_reduction {
^bb0(%x: tensor<8xf32>):
  kern.yield %x : tensor<8xf32>
}
// CHECK: kern.kernel @columns column_reduction {
kern.kernel @columns column_reduction {
^bb0(%x: tensor<8xf32>):
  kern.yield %x : tensor<8xf32>
}
// CHECK: kern.kernel @rowsAt gather {
kern.kernel @rowsAt gather {
^bb0(%x: tensor<8xf32>):
  kern.yield %x : tensor<8xf32>
}

// CHECK-LABEL: func.func @launch(
// CHECK-SAME:    %[[X:.*]]: tensor<8xf32>)
func.func @launch(%x: tensor<8xf32>) {
  // CHECK: kern.launch @double(%[[X]]) : (tensor<8xf32>) -> tensor<8xf32>
  %0 = kern.launch @double(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// The names of the block arguments are the op's; inputs may come in any order and twice.
// CHECK-LABEL: func.func @fusion(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32>, %[[S:.*]]: tensor<f32>)
func.func @fusion(%x: tensor<4x8xf32>, %s: tensor<f32>) {
  // CHECK:      %{{.*}} = kern.fusion elementwise (%[[A:.*]] = %[[X]] : tensor<4x8xf32>, %[[B:.*]] = %[[X]] : tensor<4x8xf32>) -> tensor<4x8xf32> {
  // CHECK:        %[[R:.*]] = linalg.generic {{.*}} ins(%[[A]], %[[B]] : tensor<4x8xf32>, tensor<4x8xf32>)
  // CHECK:        kern.yield %[[R]] : tensor<4x8xf32>
  // CHECK-NEXT: } {source_ops = ["lm.add", "lm.add"]}
  %0 = kern.fusion elementwise (%a = %x : tensor<4x8xf32>, %b = %x : tensor<4x8xf32>) -> tensor<4x8xf32> {
    %e = tensor.empty() : tensor<4x8xf32>
    %r = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]}
        ins(%a, %b : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%l: f32, %m: f32, %o: f32):
      %t = arith.addf %l, %m : f32
      linalg.yield %t : f32
    } -> tensor<4x8xf32>
    kern.yield %r : tensor<4x8xf32>
  } {source_ops = ["lm.add", "lm.add"]}
  // CHECK:      %{{.*}}:2 = kern.fusion row_reduction (%[[A:.*]] = %[[X]] : tensor<4x8xf32>, %[[C:.*]] = %[[S]] : tensor<f32>) -> (tensor<4x8xf32>, tensor<f32>) {
  // CHECK-NEXT:   kern.yield %[[A]], %[[C]] : tensor<4x8xf32>, tensor<f32>
  // CHECK-NEXT: }{{$}}
  %1:2 = kern.fusion row_reduction (%a = %x : tensor<4x8xf32>, %c = %s : tensor<f32>) -> (tensor<4x8xf32>, tensor<f32>) {
    kern.yield %a, %c : tensor<4x8xf32>, tensor<f32>
  }
  return
}

// CHECK-LABEL: func.func @gemm(
// CHECK-SAME:    %[[A:.*]]: tensor<4x8xbf16>, %[[W:.*]]: tensor<6x8xbf16>, %[[ACC:.*]]: tensor<4x6xf32>, %[[BIAS:.*]]: tensor<6xbf16>)
func.func @gemm(%a: tensor<4x8xbf16>, %w: tensor<6x8xbf16>, %acc: tensor<4x6xf32>, %bias: tensor<6xbf16>) {
  // CHECK: kern.gemm %[[A]], %[[W]] : (tensor<4x8xbf16>, tensor<6x8xbf16>) -> tensor<4x6xf32> {transpose_b}
  %0 = kern.gemm %a, %w : (tensor<4x8xbf16>, tensor<6x8xbf16>) -> tensor<4x6xf32> {transpose_b}
  // CHECK: kern.gemm %[[A]], %[[W]] acc %[[ACC]] : (tensor<4x8xbf16>, tensor<6x8xbf16>, tensor<4x6xf32>) -> tensor<4x6xf32> {transpose_b}
  %1 = kern.gemm %a, %w acc %acc : (tensor<4x8xbf16>, tensor<6x8xbf16>, tensor<4x6xf32>) -> tensor<4x6xf32> {transpose_b}
  // CHECK: kern.gemm %[[A]], %[[W]] bias %[[BIAS]] : (tensor<4x8xbf16>, tensor<6x8xbf16>, tensor<6xbf16>) -> tensor<4x6xbf16> {transpose_b}
  %2 = kern.gemm %a, %w bias %bias : (tensor<4x8xbf16>, tensor<6x8xbf16>, tensor<6xbf16>) -> tensor<4x6xbf16> {transpose_b}
  // CHECK: kern.gemm %[[A]], %[[W]] : (tensor<4x8xbf16>, tensor<6x8xbf16>) -> tensor<4x3xf32> {batch = 2 : i64, transpose_b}
  %stack = kern.gemm %a, %w : (tensor<4x8xbf16>, tensor<6x8xbf16>) -> tensor<4x3xf32> {transpose_b, batch = 2 : i64}
  // CHECK: kern.gemm %[[A]], %[[W]] acc %[[ACC]] bias %[[BIAS]] : (tensor<4x8xbf16>, tensor<6x8xbf16>, tensor<4x6xf32>, tensor<6xbf16>) -> tensor<4x6xf32> {transpose_b}
  %3 = kern.gemm %a, %w acc %acc bias %bias : (tensor<4x8xbf16>, tensor<6x8xbf16>, tensor<4x6xf32>, tensor<6xbf16>) -> tensor<4x6xf32> {transpose_b}
  // CHECK: kern.gemm %[[A]], %[[W]] residual %[[ACC]] : (tensor<4x8xbf16>, tensor<6x8xbf16>, tensor<4x6xf32>) -> tensor<4x6xf32> {transpose_b}
  %sum = kern.gemm %a, %w residual %acc : (tensor<4x8xbf16>, tensor<6x8xbf16>, tensor<4x6xf32>) -> tensor<4x6xf32> {transpose_b}
  // CHECK: kern.gemm %[[A]], %[[A]] : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<8x8xf32> {transpose_a}
  %4 = kern.gemm %a, %a : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<8x8xf32> {transpose_a}
  return
}

// CHECK-LABEL: func.func @attention(
// CHECK-SAME:    %[[Q:.*]]: tensor<4x8xf32>, %[[K:.*]]: tensor<4x4xf32>, %[[LSE:.*]]: tensor<4x4xf32>)
func.func @attention(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %lse: tensor<4x4xf32>) {
  // CHECK: kern.attention %[[Q]], %[[K]], %[[K]] : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 2 : i64, window = 0 : i64}
  %0:2 = kern.attention %q, %k, %k : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  // CHECK: kern.attention_grad %[[Q]], %[[Q]], %[[K]], %[[K]], %[[Q]], %[[LSE]] : ({{.*}}) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 2 : i64, window = 1 : i64}
  %1:3 = kern.attention_grad %q, %q, %k, %k, %q, %lse : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 1 : i64}
  return
}

// CHECK-LABEL: func.func @documents(
// CHECK-SAME:    %[[Q:.*]]: tensor<4x8xf32>, %[[K:.*]]: tensor<4x4xf32>, %[[S:.*]]: tensor<4xi32>, %[[T:.*]]: tensor<2x1xf32>)
func.func @documents(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %s: tensor<4xi32>, %t: tensor<2x1xf32>) {
  // CHECK: %[[O:.*]], %[[LSE:.*]] = kern.attention %[[Q]], %[[K]], %[[K]] starts %[[S]] : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64
  %o, %lse = kern.attention %q, %k, %k starts %s : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  // CHECK: kern.attention_grad %[[Q]], %[[Q]], %[[K]], %[[K]], %[[O]], %[[LSE]] starts %[[S]] : ({{.*}}, tensor<4xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64
  %0:3 = kern.attention_grad %q, %q, %k, %k, %o, %lse starts %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  // CHECK: kern.attention_grad %[[Q]], %[[Q]], %[[K]], %[[K]], %[[O]], %[[LSE]] starts %[[S]] rope %[[T]], %[[T]] : ({{.*}}, tensor<4xi32>, tensor<2x1xf32>, tensor<2x1xf32>) ->
  %1:3 = kern.attention_grad %q, %q, %k, %k, %o, %lse starts %s rope %t, %t : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4xi32>, tensor<2x1xf32>, tensor<2x1xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// CHECK-LABEL: func.func @scatter(
// CHECK-SAME:    %[[IDS:.*]]: tensor<4xi32>, %[[X:.*]]: tensor<4x8xf32>, %[[ACC:.*]]: tensor<16x8xf32>)
func.func @scatter(%ids: tensor<4xi32>, %x: tensor<4x8xf32>, %acc: tensor<16x8xf32>) {
  // CHECK: kern.scatter_add %[[IDS]], %[[X]] : (tensor<4xi32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  %0 = kern.scatter_add %ids, %x : (tensor<4xi32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  // CHECK: kern.scatter_add %[[IDS]], %[[X]] acc %[[ACC]] : (tensor<4xi32>, tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %1 = kern.scatter_add %ids, %x acc %acc : (tensor<4xi32>, tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  return
}

// CHECK-LABEL: func.func @experts(
// CHECK-SAME:    %[[L:.*]]: tensor<4x3xbf16>, %[[X:.*]]: tensor<4x8xbf16>, %[[W:.*]]: tensor<18x8xbf16>, %[[A:.*]]: tensor<18x8xf32>)
func.func @experts(%logits: tensor<4x3xbf16>, %x: tensor<4x8xbf16>, %w: tensor<18x8xbf16>, %acc: tensor<18x8xf32>) {
  // CHECK: %[[P:.*]], %[[E:.*]], %{{.*}}, %[[M:.*]] = kern.route %[[L]] : ({{.*}}) -> (tensor<4x2xf32>, tensor<4x2xi32>, tensor<3xf32>, tensor<3xf32>)
  %p, %e, %c, %m = kern.route %logits : (tensor<4x3xbf16>) -> (tensor<4x2xf32>, tensor<4x2xi32>, tensor<3xf32>, tensor<3xf32>)
  // CHECK: kern.route_grad %[[L]], %[[E]], %[[P]] dmass %[[M]] : ({{.*}}) -> tensor<4x3xbf16>
  %0 = kern.route_grad %logits, %e, %p dmass %m : (tensor<4x3xbf16>, tensor<4x2xi32>, tensor<4x2xf32>, tensor<3xf32>) -> tensor<4x3xbf16>
  // CHECK: %[[O:.*]], %[[R:.*]], %[[Q:.*]] = kern.sort_rows %[[E]] : ({{.*}}) -> (tensor<4xi32>, tensor<8xi32>, tensor<8xi32>)
  %o, %r, %q = kern.sort_rows %e : (tensor<4x2xi32>) -> (tensor<4xi32>, tensor<8xi32>, tensor<8xi32>)
  // CHECK: %[[T:.*]] = kern.take_rows %[[X]], %[[R]] : ({{.*}}) -> tensor<8x8xbf16> {chosen = 2 : i64}
  %t = kern.take_rows %x, %r : (tensor<4x8xbf16>, tensor<8xi32>) -> tensor<8x8xbf16> {chosen = 2 : i64}
  // CHECK: kern.take_rows_grad %[[T]], %[[Q]] : ({{.*}}) -> tensor<4x8xbf16>
  %1 = kern.take_rows_grad %t, %q : (tensor<8x8xbf16>, tensor<8xi32>) -> tensor<4x8xbf16>
  // CHECK: %[[Y:.*]] = kern.expert_linear %[[T]], %[[W]], %[[O]] : ({{.*}}) -> tensor<8x6xbf16>
  %y = kern.expert_linear %t, %w, %o : (tensor<8x8xbf16>, tensor<18x8xbf16>, tensor<4xi32>) -> tensor<8x6xbf16>
  // CHECK: kern.expert_linear_grad %[[Y]], %[[T]], %[[O]] acc %[[A]] : ({{.*}}) -> tensor<18x8xf32>
  %3 = kern.expert_linear_grad %y, %t, %o acc %acc : (tensor<8x6xbf16>, tensor<8x8xbf16>, tensor<4xi32>, tensor<18x8xf32>) -> tensor<18x8xf32>
  // CHECK: %[[GU:.*]], %{{.*}} = kern.linear_swiglu %[[T]], %[[W]] : (tensor<8x8xbf16>, tensor<18x8xbf16>) -> (tensor<8x18xbf16>, tensor<8x9xbf16>)
  %gu, %a = kern.linear_swiglu %t, %w : (tensor<8x8xbf16>, tensor<18x8xbf16>) -> (tensor<8x18xbf16>, tensor<8x9xbf16>)
  // CHECK: kern.linear_swiglu {{.*}} {both}
  %gu2, %a2 = kern.linear_swiglu %t, %w : (tensor<8x8xbf16>, tensor<18x8xbf16>) -> (tensor<8x18xbf16>, tensor<8x9xbf16>) {both}
  // CHECK: kern.swiglu_linear_grad %[[T]], %{{.*}}, %[[GU]] : ({{.*}}) -> (tensor<8x18xbf16>, tensor<8x9xbf16>) {both}
  %dgu, %a3 = kern.swiglu_linear_grad %t, %a, %gu : (tensor<8x8xbf16>, tensor<8x9xbf16>, tensor<8x18xbf16>) -> (tensor<8x18xbf16>, tensor<8x9xbf16>) {both}
  // CHECK: %[[SW:.*]] = kern.expert_swiglu %[[Y]], %[[O]] : (tensor<8x6xbf16>, tensor<4xi32>) -> tensor<8x3xbf16>
  %sw = kern.expert_swiglu %y, %o : (tensor<8x6xbf16>, tensor<4xi32>) -> tensor<8x3xbf16>
  // CHECK: kern.expert_swiglu_grad %[[SW]], %[[Y]], %[[O]] : ({{.*}}) -> tensor<8x6xbf16>
  %dsw = kern.expert_swiglu_grad %sw, %y, %o : (tensor<8x3xbf16>, tensor<8x6xbf16>, tensor<4xi32>) -> tensor<8x6xbf16>
  // CHECK: %[[D:.*]] = kern.combine_rows %[[T]], %[[P]], %[[Q]] : ({{.*}}) -> tensor<4x8xbf16>
  %d = kern.combine_rows %t, %p, %q : (tensor<8x8xbf16>, tensor<4x2xf32>, tensor<8xi32>) -> tensor<4x8xbf16>
  // CHECK: kern.combine_rows_grad %[[D]], %[[T]], %[[P]], %[[R]], %[[Q]] : ({{.*}}) -> (tensor<8x8xbf16>, tensor<4x2xf32>)
  %4:2 = kern.combine_rows_grad %d, %t, %p, %r, %q : (tensor<4x8xbf16>, tensor<8x8xbf16>, tensor<4x2xf32>, tensor<8xi32>, tensor<8xi32>) -> (tensor<8x8xbf16>, tensor<4x2xf32>)
  return
}
