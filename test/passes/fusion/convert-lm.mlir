// kern-convert-lm turns every lm op into library calls and fusions of one op.
// RUN: lmc-opt %s --kern-convert-lm --mlir-print-local-scope | FileCheck %s

// Matrix products are library calls; marks of the backward pass stay.
// CHECK-LABEL: func.func @products(
// CHECK-SAME:    %[[X:[^ ]*]]: tensor<4x8xbf16>, %[[W:[^ ]*]]: tensor<6x8xbf16>, %[[B:[^ ]*]]: tensor<6xbf16>, %[[DY:[^ ]*]]: tensor<4x6xbf16>, %[[ACC:[^ ]*]]: tensor<6x8xf32>)
// CHECK-NEXT:    kern.gemm %[[X]], %[[W]] : (tensor<4x8xbf16>, tensor<6x8xbf16>) -> tensor<4x6xbf16> {transpose_b}
// CHECK-NEXT:    kern.gemm %[[X]], %[[W]] bias %[[B]] : (tensor<4x8xbf16>, tensor<6x8xbf16>, tensor<6xbf16>) -> tensor<4x6xbf16> {transpose_b}
// CHECK-NEXT:    kern.gemm %[[DY]], %[[X]] : (tensor<4x6xbf16>, tensor<4x8xbf16>) -> tensor<6x8xf32> {backward, transpose_a}
// CHECK-NEXT:    kern.gemm %[[DY]], %[[X]] acc %[[ACC]] : (tensor<4x6xbf16>, tensor<4x8xbf16>, tensor<6x8xf32>) -> tensor<6x8xf32> {backward, transpose_a}
// CHECK-NEXT:    return
func.func @products(%x: tensor<4x8xbf16>, %w: tensor<6x8xbf16>, %b: tensor<6xbf16>, %dy: tensor<4x6xbf16>, %acc: tensor<6x8xf32>) -> (tensor<4x6xbf16>, tensor<4x6xbf16>, tensor<6x8xf32>, tensor<6x8xf32>) {
  %0 = lm.linear %x, %w : (tensor<4x8xbf16>, tensor<6x8xbf16>) -> tensor<4x6xbf16>
  %1 = lm.linear %x, %w bias %b : (tensor<4x8xbf16>, tensor<6x8xbf16>, tensor<6xbf16>) -> tensor<4x6xbf16>
  %2 = lm.matmul %dy, %x : (tensor<4x6xbf16>, tensor<4x8xbf16>) -> tensor<6x8xf32> {backward, transpose_a}
  %3 = lm.matmul %dy, %x acc %acc : (tensor<4x6xbf16>, tensor<4x8xbf16>, tensor<6x8xf32>) -> tensor<6x8xf32> {backward, transpose_a}
  return %0, %1, %2, %3 : tensor<4x6xbf16>, tensor<4x6xbf16>, tensor<6x8xf32>, tensor<6x8xf32>
}

// CHECK-LABEL: func.func @templates(
// CHECK-SAME:    %[[Q:[^ ]*]]: tensor<4x8xf32>, %[[K:[^ ]*]]: tensor<4x4xf32>, %[[IDS:[^ ]*]]: tensor<4xi32>, %[[ACC:[^ ]*]]: tensor<16x8xf32>)
// CHECK-NEXT:    %[[O:.*]], %[[LSE:.*]] = kern.attention %[[Q]], %[[K]], %[[K]] : {{.*}} {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 2 : i64, window = 0 : i64}
// CHECK-NEXT:    %[[DQ:.*]], %{{.*}}, %{{.*}} = kern.attention_grad %[[Q]], %[[Q]], %[[K]], %[[K]], %[[O]], %[[LSE]] : {{.*}} {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 2 : i64, window = 1 : i64}
// CHECK-NEXT:    %[[E:.*]] = kern.scatter_add %[[IDS]], %[[Q]] :
// CHECK-NEXT:    %[[F:.*]] = kern.scatter_add %[[IDS]], %[[Q]] acc %[[ACC]] :
// CHECK-NEXT:    return %[[O]], %[[DQ]], %[[E]], %[[F]]
func.func @templates(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %ids: tensor<4xi32>, %acc: tensor<16x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>) {
  %o, %lse = lm.attention %q, %k, %k : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  %dq, %dk, %dv = lm.attention_grad %q, %q, %k, %k, %o, %lse : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 1 : i64}
  %e = lm.embedding_grad %ids, %q : (tensor<4xi32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  %f = lm.embedding_grad %ids, %q acc %acc : (tensor<4xi32>, tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  return %o, %dq, %e, %f : tensor<4x8xf32>, tensor<4x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>
}

// CHECK-LABEL: func.func @documents(
// CHECK-SAME:    %[[Q:[^ ]*]]: tensor<4x8xf32>, %[[S:[^ ]*]]: tensor<4xi32>, %[[T:[^ ]*]]: tensor<2x1xf32>)
// CHECK-NEXT:    %[[O:.*]], %[[LSE:.*]] = kern.attention %[[Q]], %[[Q]], %[[Q]] starts %[[S]] :
// CHECK-NEXT:    %[[DQ:.*]], %{{.*}}, %{{.*}} = kern.attention_grad %[[Q]], %[[Q]], %[[Q]], %[[Q]], %[[O]], %[[LSE]] starts %[[S]] rope %[[T]], %[[T]] :
func.func @documents(%q: tensor<4x8xf32>, %s: tensor<4xi32>, %t: tensor<2x1xf32>) -> tensor<4x8xf32> {
  %o, %lse = lm.attention %q, %q, %q starts %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  %dq, %dk, %dv = lm.attention_grad %q, %q, %q, %q, %o, %lse starts %s rope %t, %t : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4xi32>, tensor<2x1xf32>, tensor<2x1xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return %dq : tensor<4x8xf32>
}

// The rest are fusions of one op, which compute in f32 what is stored in bf16.
// CHECK-LABEL: func.func @add(
// CHECK-SAME:    %[[X:[^ ]*]]: tensor<4x8xbf16>, %[[Y:[^ ]*]]: tensor<4x8xbf16>)
// CHECK-NEXT:    %[[R:.*]] = kern.fusion elementwise (%[[A:.*]] = %[[X]] : tensor<4x8xbf16>, %[[B:.*]] = %[[Y]] : tensor<4x8xbf16>) -> tensor<4x8xbf16> {
// CHECK:           %[[S:.*]] = linalg.generic {{.*}} ins(%[[A]], %[[B]] :
// CHECK-NEXT:      ^bb0(%[[XB:.*]]: bf16, %[[YB:.*]]: bf16, %{{.*}}: bf16):
// CHECK-NEXT:        %[[XF:.*]] = arith.extf %[[XB]] : bf16 to f32
// CHECK-NEXT:        %[[YF:.*]] = arith.extf %[[YB]] : bf16 to f32
// CHECK-NEXT:        %[[SF:.*]] = arith.addf %[[XF]], %[[YF]] : f32
// CHECK-NEXT:        %[[SB:.*]] = arith.truncf %[[SF]] : f32 to bf16
// CHECK-NEXT:        linalg.yield %[[SB]] : bf16
// CHECK:           kern.yield %[[S]]
// CHECK-NEXT:    } {source_ops = ["lm.add"]}
// CHECK-NEXT:    return %[[R]]
func.func @add(%x: tensor<4x8xbf16>, %y: tensor<4x8xbf16>) -> tensor<4x8xbf16> {
  %0 = lm.add %x, %y : tensor<4x8xbf16>
  return %0 : tensor<4x8xbf16>
}

// CHECK-LABEL: func.func @scale(
// CHECK:         kern.fusion elementwise
// CHECK:           linalg.generic {{.*}} iterator_types = []
// CHECK:             arith.mulf
// CHECK:         } {source_ops = ["lm.scale"]}
func.func @scale(%x: tensor<f32>, %s: tensor<f32>) -> tensor<f32> {
  %0 = lm.scale %x, %s : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// The sum of squares of a row, 1 / sqrt(mean + eps), then the row again.
// CHECK-LABEL: func.func @rmsNorm(
// CHECK:         kern.fusion row_reduction (%[[X:.*]] = %{{.*}} : tensor<4x8xbf16>, %[[W:.*]] = %{{.*}} : tensor<8xf32>) -> tensor<4x8xbf16> {
// CHECK-NEXT:      %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK:           %[[FILL:.*]] = linalg.fill ins(%[[ZERO]] : f32)
// CHECK-NEXT:      %[[SQUARES:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[X]] : tensor<4x8xbf16>) outs(%[[FILL]] : tensor<4xf32>)
// CHECK-NEXT:      ^bb0(%[[XB:.*]]: bf16, %[[SUM:.*]]: f32):
// CHECK-NEXT:        %[[XF:.*]] = arith.extf %[[XB]]
// CHECK-NEXT:        %[[SQ:.*]] = arith.mulf %[[XF]], %[[XF]]
// CHECK-NEXT:        arith.addf %[[SUM]], %[[SQ]]
// CHECK:           %[[R:.*]] = linalg.generic {{.*}} ins(%[[SQUARES]] : tensor<4xf32>)
// CHECK-DAG:         arith.constant 1.250000e-01 : f32
// CHECK-DAG:         arith.constant 9.99999974E-6 : f32
// CHECK:             math.sqrt
// CHECK:             arith.divf
// CHECK:           %[[Y:.*]] = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%[[X]], %[[R]], %[[W]] :
// CHECK:             arith.truncf
// CHECK:           kern.yield %[[Y]]
// CHECK:         } {source_ops = ["lm.rms_norm"]}
func.func @rmsNorm(%x: tensor<4x8xbf16>, %w: tensor<8xf32>) -> tensor<4x8xbf16> {
  %0 = lm.rms_norm %x, %w eps 1.0e-5 : (tensor<4x8xbf16>, tensor<8xf32>) -> tensor<4x8xbf16>
  return %0 : tensor<4x8xbf16>
}

// One kernel over rows, which also adds them up in blocks (here all four are one), and one over
// columns that adds the blocks.
// CHECK-LABEL: func.func @rmsNormGrad(
// CHECK-SAME:    %[[DY:[^ ]*]]: tensor<4x8xf32>, %[[X:[^ ]*]]: tensor<4x8xf32>, %[[W:[^ ]*]]: tensor<8xf32>)
// CHECK-NEXT:    %[[ROWS:.*]]:2 = kern.fusion row_reduction (%{{.*}} = %[[DY]] : tensor<4x8xf32>, %{{.*}} = %[[X]] : tensor<4x8xf32>, %{{.*}} = %[[W]] : tensor<8xf32>) -> (tensor<4x8xf32>, tensor<1x8xf32>) {
// CHECK:           linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0 * 4 + d1, d2)>, affine_map<(d0, d1, d2) -> (d0 * 4 + d1, d2)>, affine_map<(d0, d1, d2) -> (d0 * 4 + d1)>, affine_map<(d0, d1, d2) -> (d1)>, affine_map<(d0, d1, d2) -> (d0, d2)>], iterator_types = ["parallel", "reduction", "parallel"]}
// CHECK:         } {backward, source_ops = ["lm.rms_norm_grad"]}
// CHECK-NEXT:    %[[DW:.*]] = kern.fusion column_reduction (%{{.*}} = %[[ROWS]]#1 : tensor<1x8xf32>) -> tensor<8xf32> {
// CHECK:           linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]
// CHECK:         } {backward, source_ops = ["lm.rms_norm_grad_weight"]}
// CHECK-NEXT:    return %[[ROWS]]#0, %[[DW]]
func.func @rmsNormGrad(%dy: tensor<4x8xf32>, %x: tensor<4x8xf32>, %w: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>) {
  %0:2 = lm.rms_norm_grad %dy, %x, %w eps 1.0e-5 : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>) {backward}
  return %0#0, %0#1 : tensor<4x8xf32>, tensor<8xf32>
}

// The norm of each head: the rows are (token, head). The rows of a block are those of some tokens.
// CHECK-LABEL: func.func @rmsNormOfHeads(
// CHECK:         %[[X:.*]] = tensor.expand_shape %{{.*}} {{\[\[}}0], [1, 2]] output_shape [4, 2, 4] : tensor<4x8xf32> into tensor<4x2x4xf32>
// CHECK-NEXT:    %[[Y:.*]] = kern.fusion row_reduction (%{{.*}} = %[[X]] : tensor<4x2x4xf32>, %{{.*}} : tensor<4xf32>) -> tensor<4x2x4xf32> {
// CHECK:           linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]
// CHECK:         } {source_ops = ["lm.rms_norm"]}
// CHECK-NEXT:    tensor.collapse_shape %[[Y]]
// CHECK:         kern.fusion row_reduction {{.*}} -> (tensor<4x2x4xf32>, tensor<1x4xf32>) {
// CHECK:           linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0 * 4 + d1, d2, d3)>, {{.*}}, affine_map<(d0, d1, d2, d3) -> (d0, d3)>], iterator_types = ["parallel", "reduction", "reduction", "parallel"]}
// CHECK:         } {source_ops = ["lm.rms_norm_grad"]}
func.func @rmsNormOfHeads(%x: tensor<4x8xf32>, %w: tensor<4xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>) {
  %0 = lm.rms_norm %x, %w eps 1.0e-5 : (tensor<4x8xf32>, tensor<4xf32>) -> tensor<4x8xf32>
  %1:2 = lm.rms_norm_grad %0, %x, %w eps 1.0e-5 : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return %0, %1#0, %1#1 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>
}

// A norm that only a rotation reads has the loops of the rotation, (batch, seq, heads, half of a head); that of a
// whole row reduces the last two of them. The rotation reads what the norm makes without a view between.
// CHECK-LABEL: func.func @rotatedNorm(
// CHECK:         %[[N:.*]] = kern.fusion row_reduction ({{.*}} : tensor<2x2x2x2x2xf32>, {{.*}} : tensor<2x2x2xf32>) -> tensor<2x2x2x2x2xf32> {
// CHECK:           linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction", "reduction"]
// CHECK:         } {source_ops = ["lm.rms_norm"]}
// CHECK-NOT:     tensor.collapse_shape
// CHECK:         kern.fusion elementwise (%{{.*}} = %[[N]] : tensor<2x2x2x2x2xf32>
// CHECK:         } {source_ops = ["lm.rope"]}
func.func @rotatedNorm(%x: tensor<4x8xf32>, %w: tensor<8xf32>, %cos: tensor<2x2xf32>, %sin: tensor<2x2xf32>) -> tensor<4x8xf32> {
  %0 = lm.rms_norm %x, %w eps 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %1 = lm.rope %0, %cos, %sin head_dim 4 : (tensor<4x8xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// Blocks are of equal size: of 64 rows or a little less, where the count of rows allows it.
// CHECK-LABEL: func.func @blocks(
// CHECK:         -> (tensor<300x8xf32>, tensor<5x8xf32>)
// CHECK:         -> (tensor<134x8xf32>, tensor<67x8xf32>)
func.func @blocks(%x: tensor<300x8xf32>, %y: tensor<134x8xf32>, %w: tensor<8xf32>) -> (tensor<300x8xf32>, tensor<134x8xf32>) {
  %0:2 = lm.rms_norm_grad %x, %x, %w eps 1.0e-5 : (tensor<300x8xf32>, tensor<300x8xf32>, tensor<8xf32>) -> (tensor<300x8xf32>, tensor<8xf32>)
  %1:2 = lm.rms_norm_grad %y, %y, %w eps 1.0e-5 : (tensor<134x8xf32>, tensor<134x8xf32>, tensor<8xf32>) -> (tensor<134x8xf32>, tensor<8xf32>)
  return %0#0, %1#0 : tensor<300x8xf32>, tensor<134x8xf32>
}

// Heads are seen as two halves, x0 and x1, and the table is read at the position in the
// sequence: y0 = x0 cos - x1 sin, y1 = x1 cos + x0 sin. Going back, the signs are swapped.
// CHECK-LABEL: func.func @rope(
// CHECK-SAME:    %[[X:[^ ]*]]: tensor<4x8xf32>, %[[COS:[^ ]*]]: tensor<2x2xf32>, %[[SIN:[^ ]*]]: tensor<2x2xf32>)
// CHECK-NEXT:    %[[SPLIT:.*]] = tensor.expand_shape %[[X]] {{\[\[}}0, 1], [2, 3, 4]] output_shape [2, 2, 2, 2, 2]
// CHECK-NEXT:    %[[Y:.*]] = kern.fusion elementwise (%[[A:.*]] = %[[SPLIT]] : {{.*}}, %[[C:.*]] = %[[COS]] : {{.*}}, %[[S:.*]] = %[[SIN]] : {{.*}}) -> tensor<2x2x2x2x2xf32> {
// CHECK:           %[[Y0:.*]] = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 1, d3)>, affine_map<(d0, d1, d2, d3) -> (d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d1, d3)>,
// CHECK-SAME:        ins(%[[A]], %[[A]], %[[C]], %[[S]] :
// CHECK:             arith.constant -1.000000e+00
// CHECK:           %[[Y1:.*]] = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 1, d3)>, affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0, d3)>,
// CHECK:             arith.constant 1.000000e+00
// CHECK:           %[[E:.*]] = tensor.empty() : tensor<2x2x2x2x2xf32>
// CHECK-NEXT:      %[[I:.*]] = tensor.insert_slice %[[Y0]] into %[[E]][0, 0, 0, 0, 0] [2, 2, 2, 1, 2] [1, 1, 1, 1, 1]
// CHECK-NEXT:      %[[J:.*]] = tensor.insert_slice %[[Y1]] into %[[I]][0, 0, 0, 1, 0] [2, 2, 2, 1, 2] [1, 1, 1, 1, 1]
// CHECK-NEXT:      kern.yield %[[J]]
// CHECK-NEXT:    } {source_ops = ["lm.rope"]}
// CHECK-NEXT:    %[[JOINED:.*]] = tensor.collapse_shape %[[Y]] {{\[\[}}0, 1], [2, 3, 4]]
// CHECK:             arith.constant 1.000000e+00
// CHECK:             arith.constant -1.000000e+00
// CHECK:         return %[[JOINED]],
func.func @rope(%x: tensor<4x8xf32>, %cos: tensor<2x2xf32>, %sin: tensor<2x2xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = lm.rope %x, %cos, %sin head_dim 4 : (tensor<4x8xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<4x8xf32>
  %1 = lm.rope %x, %cos, %sin head_dim 4 : (tensor<4x8xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<4x8xf32> {inverse}
  return %0, %1 : tensor<4x8xf32>, tensor<4x8xf32>
}

// CHECK-LABEL: func.func @swiglu(
// CHECK:         kern.fusion elementwise
// CHECK:             ^bb0(%[[G:.*]]: f32, %[[U:.*]]: f32, %{{.*}}: f32):
// CHECK:               %[[N:.*]] = arith.negf %[[G]]
// CHECK-NEXT:          %[[E:.*]] = math.exp %[[N]]
// CHECK-NEXT:          %[[D:.*]] = arith.addf %[[ONE:.*]], %[[E]]
// CHECK-NEXT:          %[[SIG:.*]] = arith.divf %[[ONE]], %[[D]]
// CHECK-NEXT:          %[[SILU:.*]] = arith.mulf %[[G]], %[[SIG]]
// CHECK-NEXT:          %[[Y:.*]] = arith.mulf %[[SILU]], %[[U]]
// CHECK-NEXT:          linalg.yield %[[Y]]
// CHECK:         } {source_ops = ["lm.swiglu"]}
// CHECK-NEXT:    %[[D:.*]]:2 = kern.fusion elementwise ({{.*}}) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
// CHECK:           %[[DG:.*]] = linalg.generic
// CHECK:           %[[DU:.*]] = linalg.generic
// CHECK:           kern.yield %[[DG]], %[[DU]]
// CHECK-NEXT:    } {source_ops = ["lm.swiglu_grad"]}
func.func @swiglu(%g: tensor<4x8xf32>, %u: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = lm.swiglu %g, %u : tensor<4x8xf32>
  %1:2 = lm.swiglu_grad %0, %g, %u : tensor<4x8xf32>
  return %0, %1#0, %1#1 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// CHECK-LABEL: func.func @embedding(
// CHECK:         kern.fusion gather (%[[IDS:.*]] = %{{.*}} : tensor<4xi32>, %[[TABLE:.*]] = %{{.*}} : tensor<16x8xf32>) -> tensor<4x8xf32> {
// CHECK:           linalg.generic {{.*}} ins(%[[IDS]] : tensor<4xi32>)
// CHECK:             %[[ROW:.*]] = arith.index_cast
// CHECK:             %[[COLUMN:.*]] = linalg.index 1
// CHECK:             tensor.extract %[[TABLE]][%[[ROW]], %[[COLUMN]]]
// CHECK:         } {source_ops = ["lm.embedding"]}
func.func @embedding(%ids: tensor<4xi32>, %table: tensor<16x8xf32>) -> tensor<4x8xf32> {
  %0 = lm.embedding %ids, %table : (tensor<4xi32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// The mean comes first, then the squares of the differences from it.
// CHECK-LABEL: func.func @layerNorm(
// CHECK:         kern.fusion row_reduction
// CHECK:           iterator_types = ["parallel", "reduction"]
// CHECK:           iterator_types = ["parallel", "reduction"]
// CHECK:             arith.subf
// CHECK:             arith.mulf
// CHECK:           math.sqrt
// CHECK:         } {source_ops = ["lm.layer_norm"]}
func.func @layerNorm(%x: tensor<4x8xbf16>, %w: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<4x8xbf16> {
  %0 = lm.layer_norm %x, %w, %b eps 1.0e-5 : (tensor<4x8xbf16>, tensor<8xf32>, tensor<8xf32>) -> tensor<4x8xbf16>
  return %0 : tensor<4x8xbf16>
}

// One kernel over the rows makes dx and partial sums; one over the columns adds those of each.
// CHECK-LABEL: func.func @layerNormGrad(
// CHECK:         %[[R:.*]]:3 = kern.fusion row_reduction {{.*}} -> (tensor<4x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>) {
// CHECK:         } {source_ops = ["lm.layer_norm_grad"]}
// CHECK:         kern.fusion column_reduction (%{{.*}} = %[[R]]#1
// CHECK:         } {source_ops = ["lm.layer_norm_grad_weight"]}
// CHECK:         kern.fusion column_reduction (%{{.*}} = %[[R]]#2
// CHECK:         } {source_ops = ["lm.layer_norm_grad_bias"]}
func.func @layerNormGrad(%dy: tensor<4x8xf32>, %x: tensor<4x8xf32>, %w: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %0:3 = lm.layer_norm_grad %dy, %x, %w eps 1.0e-5 : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>)
  return %0#0, %0#1, %0#2 : tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>
}

// CHECK-LABEL: func.func @gelu(
// CHECK:         kern.fusion elementwise
// CHECK:           math.exp
// CHECK:         } {source_ops = ["lm.gelu"]}
// CHECK:         kern.fusion elementwise
// CHECK:           math.exp
// CHECK:         } {source_ops = ["lm.gelu_grad"]}
func.func @gelu(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0 = lm.gelu %x : tensor<4x8xf32>
  %1 = lm.gelu_grad %0, %x : tensor<4x8xf32>
  return %0, %1 : tensor<4x8xf32>, tensor<4x8xf32>
}

// The weight has a row for each feature of x.
// CHECK-LABEL: func.func @transposedLinear(
// CHECK:         kern.gemm %{{.*}}, %{{.*}} bias %{{.*}} : (tensor<4x8xf32>, tensor<8x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
// CHECK-NOT:     transpose
// CHECK:         return
func.func @transposedLinear(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %b: tensor<6xf32>) -> tensor<4x6xf32> {
  %0 = lm.linear %x, %w bias %b : (tensor<4x8xf32>, tensor<8x6xf32>, tensor<6xf32>) -> tensor<4x6xf32> {transposed}
  return %0 : tensor<4x6xf32>
}

// CHECK-LABEL: func.func @sumRows(
// CHECK:         kern.fusion column_reduction
// CHECK:           linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]
// CHECK:             arith.extf
// CHECK:             arith.addf
// CHECK:         } {source_ops = ["lm.sum_rows"]}
func.func @sumRows(%x: tensor<4x8xbf16>) -> tensor<8xf32> {
  %0 = lm.sum_rows %x : (tensor<4x8xbf16>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// Row sums of each operand, a vector being one row, side by side; then their sum's root.
// CHECK-LABEL: func.func @globalNorm(
// CHECK-SAME:    %[[X:[^ ]*]]: tensor<4x8xf32>, %[[Y:[^ ]*]]: tensor<8xf32>)
// CHECK-NEXT:    %[[SX:.*]] = kern.fusion row_reduction (%{{.*}} = %[[X]] : tensor<4x8xf32>) -> tensor<4xf32> {
// CHECK:         } {source_ops = ["lm.sum_squares"]}
// CHECK-NEXT:    %[[ROW:.*]] = tensor.expand_shape %[[Y]] {{.*}} : tensor<8xf32> into tensor<1x8xf32>
// CHECK-NEXT:    %[[SY:.*]] = kern.fusion row_reduction (%{{.*}} = %[[ROW]] : tensor<1x8xf32>) -> tensor<1xf32> {
// CHECK:         } {source_ops = ["lm.sum_squares"]}
// CHECK-NEXT:    %[[NONE:.*]] = tensor.empty() : tensor<5xf32>
// CHECK-NEXT:    %[[SOME:.*]] = tensor.insert_slice %[[SX]] into %[[NONE]][0] [4] [1]
// CHECK-NEXT:    %[[ALL:.*]] = tensor.insert_slice %[[SY]] into %[[SOME]][4] [1] [1]
// CHECK-NEXT:    %[[NORM:.*]] = kern.fusion row_reduction (%{{.*}} = %[[ALL]] : tensor<5xf32>) -> tensor<f32> {
// CHECK:           math.sqrt
// CHECK:         } {source_ops = ["lm.norm"]}
// CHECK-NEXT:    return %[[NORM]]
func.func @globalNorm(%x: tensor<4x8xf32>, %y: tensor<8xf32>) -> tensor<f32> {
  %0 = lm.global_norm %x, %y : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// The norm becomes infinite if it or the loss is above its limit; a NaN is above none.
// CHECK-LABEL: func.func @guardNorm(
// CHECK:           arith.cmpf ogt
// CHECK:           arith.select
// CHECK:           arith.cmpf ogt
// CHECK:           arith.select
// CHECK:         } {source_ops = ["lm.guard_norm"]}
func.func @guardNorm(%norm: tensor<f32>, %loss: tensor<f32>, %n: tensor<f32>, %l: tensor<f32>) -> tensor<f32> {
  %0 = lm.guard_norm %norm, %loss limits %n, %l : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// The loss is made chunk by chunk, the last one smaller: no more than a chunk's logits exist.
// CHECK-LABEL: func.func @loss(
// CHECK-SAME:    %[[X:[^ ]*]]: tensor<5x8xbf16>, %[[W:[^ ]*]]: tensor<16x8xbf16>, %[[T:[^ ]*]]: tensor<5xi32>)
// CHECK-NEXT:    %[[L0:.*]] = tensor.empty() : tensor<5xf32>
// CHECK-NEXT:    %[[X0:.*]] = tensor.extract_slice %[[X]][0, 0] [2, 8] [1, 1]
// CHECK-NEXT:    %[[LOGITS0:.*]] = kern.gemm %[[X0]], %[[W]] : {{.*}} -> tensor<2x16xbf16> {transpose_b}
// CHECK-NEXT:    %[[T0:.*]] = tensor.extract_slice %[[T]][0] [2] [1]
// CHECK-NEXT:    %[[NLL0:.*]] = kern.fusion row_reduction (%{{.*}} = %[[LOGITS0]] : tensor<2x16xbf16>, %{{.*}} = %[[T0]] : tensor<2xi32>) -> tensor<2xf32> {
// CHECK:         } {source_ops = ["lm.linear_cross_entropy"]}
// CHECK-NEXT:    %[[L1:.*]] = tensor.insert_slice %[[NLL0]] into %[[L0]][0] [2] [1]
// CHECK-NEXT:    %[[X1:.*]] = tensor.extract_slice %[[X]][2, 0] [2, 8] [1, 1]
// CHECK:         %[[T1:.*]] = tensor.extract_slice %[[T]][2] [2] [1]
// CHECK:         %[[L2:.*]] = tensor.insert_slice %{{.*}} into %[[L1]][2] [2] [1]
// CHECK-NEXT:    %[[X2:.*]] = tensor.extract_slice %[[X]][4, 0] [1, 8] [1, 1]
// CHECK-NEXT:    kern.gemm %[[X2]], %[[W]] : {{.*}} -> tensor<1x16xbf16> {transpose_b}
// CHECK:         %[[L3:.*]] = tensor.insert_slice %{{.*}} into %[[L2]][4] [1] [1]
// CHECK-NEXT:    %[[SUM:.*]] = kern.fusion row_reduction (%{{.*}} = %[[L3]] : tensor<5xf32>) -> tensor<f32> {
// CHECK:         } {source_ops = ["lm.sum_losses"]}
// CHECK-NEXT:    return %[[SUM]]
func.func @loss(%x: tensor<5x8xbf16>, %w: tensor<16x8xbf16>, %t: tensor<5xi32>) -> tensor<f32> {
  %0 = lm.linear_cross_entropy %x, %w, %t chunk 2 : (tensor<5x8xbf16>, tensor<16x8xbf16>, tensor<5xi32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// With the gradient, each chunk also makes its part of dx, and adds to dweight.
// CHECK-LABEL: func.func @lossGrad(
// CHECK-SAME:    %[[X:[^ ]*]]: tensor<4x8xbf16>, %[[W:[^ ]*]]: tensor<16x8xbf16>, %[[T:[^ ]*]]: tensor<4xi32>, %[[S:[^ ]*]]: tensor<f32>, %[[ACC:[^ ]*]]: tensor<16x8xf32>)
// CHECK-NEXT:    %[[L0:.*]] = tensor.empty() : tensor<4xf32>
// CHECK-NEXT:    %[[DX0:.*]] = tensor.empty() : tensor<4x8xbf16>
// CHECK:         %[[X0:.*]] = tensor.extract_slice %[[X]][0, 0] [2, 8] [1, 1]
// CHECK:         %[[K0:.*]]:2 = kern.fusion row_reduction ({{.*}}, %{{.*}} = %[[S]] : tensor<f32>) -> (tensor<2xf32>, tensor<2x16xbf16>) {
// CHECK:         } {backward, source_ops = ["lm.linear_cross_entropy_grad"]}
// CHECK-NEXT:    %[[L1:.*]] = tensor.insert_slice %[[K0]]#0 into %[[L0]][0] [2] [1]
// CHECK-NEXT:    %[[P0:.*]] = kern.gemm %[[K0]]#1, %[[W]] : {{.*}} -> tensor<2x8xbf16> {backward}
// CHECK-NEXT:    %[[DX1:.*]] = tensor.insert_slice %[[P0]] into %[[DX0]][0, 0] [2, 8] [1, 1]
// CHECK-NEXT:    %[[DW0:.*]] = kern.gemm %[[K0]]#1, %[[X0]] acc %[[ACC]] : {{.*}} -> tensor<16x8xf32> {backward, transpose_a}
// CHECK-NEXT:    %[[X1:.*]] = tensor.extract_slice %[[X]][2, 0] [2, 8] [1, 1]
// CHECK:         %[[K1:.*]]:2 = kern.fusion row_reduction
// CHECK:         %[[L2:.*]] = tensor.insert_slice %[[K1]]#0 into %[[L1]][2] [2] [1]
// CHECK-NEXT:    %[[P1:.*]] = kern.gemm %[[K1]]#1, %[[W]] :
// CHECK-NEXT:    %[[DX2:.*]] = tensor.insert_slice %[[P1]] into %[[DX1]][2, 0] [2, 8] [1, 1]
// CHECK-NEXT:    %[[DW1:.*]] = kern.gemm %[[K1]]#1, %[[X1]] acc %[[DW0]] :
// CHECK-NEXT:    %[[SUM:.*]] = kern.fusion row_reduction (%{{.*}} = %[[L2]] :
// CHECK:         return %[[SUM]], %[[DX2]], %[[DW1]]
func.func @lossGrad(%x: tensor<4x8xbf16>, %w: tensor<16x8xbf16>, %t: tensor<4xi32>, %s: tensor<f32>, %acc: tensor<16x8xf32>) -> (tensor<f32>, tensor<4x8xbf16>, tensor<16x8xf32>) {
  %0:3 = lm.linear_cross_entropy_grad %x, %w, %t, %s acc %acc chunk 2 : (tensor<4x8xbf16>, tensor<16x8xbf16>, tensor<4xi32>, tensor<f32>, tensor<16x8xf32>) -> (tensor<f32>, tensor<4x8xbf16>, tensor<16x8xf32>) {backward}
  return %0#0, %0#1, %0#2 : tensor<f32>, tensor<4x8xbf16>, tensor<16x8xf32>
}

// One chunk that holds everything takes no slices, and without an accumulator none is made.
// CHECK-LABEL: func.func @oneChunk(
// CHECK-NOT:     slice
// CHECK:         kern.gemm {{.*}} -> tensor<4x16xf32> {transpose_b}
// CHECK-NOT:     slice
// CHECK:         kern.gemm {{.*}} : (tensor<4x16xf32>, tensor<4x8xf32>) -> tensor<16x8xf32> {transpose_a}
// CHECK-NOT:     slice
// CHECK:         return
func.func @oneChunk(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %t: tensor<4xi32>, %s: tensor<f32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>) {
  %0:3 = lm.linear_cross_entropy_grad %x, %w, %t, %s chunk 64 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>, tensor<f32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>)
  return %0#0, %0#1, %0#2 : tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>
}

// AdamW is one kernel over the rows; a vector is one row. Without decay it is another kernel.
// CHECK-LABEL: func.func @adamw(
// CHECK:         %[[ROW:.*]] = tensor.expand_shape {{.*}} : tensor<8xf32> into tensor<1x8xf32>
// CHECK:         %[[R:.*]]:6 = kern.fusion row_reduction (%{{.*}} = %[[ROW]] : {{.*}}) -> (tensor<1x8xf32>, tensor<1x8xf32>, tensor<1x8xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1x8xbf16>) {
// CHECK:         } {source_ops = ["lm.adamw"]}
// CHECK-DAG:     %[[P:.*]] = tensor.collapse_shape %[[R]]#0
// CHECK-DAG:     %[[C:.*]] = tensor.collapse_shape %[[R]]#5
// CHECK:         kern.fusion row_reduction
// CHECK:         } {source_ops = ["lm.adamw_no_decay"]}
// CHECK:         return %[[P]], %[[C]]
func.func @adamw(%p: tensor<8xf32>, %s: tensor<f32>) -> (tensor<8xf32>, tensor<8xbf16>) {
  %0:6 = lm.adamw %p, %p, %p, %p norm %s lr %s betas %s %s eps %s weight_decay %s bias_corrections %s %s clip_grad %s : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<1xf32>, tensor<1xf32>, tensor<8xbf16>)
  %1:5 = lm.adamw %p, %p, %p, %p norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<1xf32>, tensor<1xf32>)
  return %0#0, %0#5 : tensor<8xf32>, tensor<8xbf16>
}

// Moments in 8 bits: the rows are blocks of 256 elements, whatever the parameter's shape. The largest of a block is found in a first pass, codes are written in a second; nothing is a table.
// CHECK-LABEL: func.func @adamw8bit(
// CHECK:         %[[LINE:.*]] = tensor.collapse_shape %arg0 {{.*}} : tensor<16x64xf32> into tensor<1024xf32>
// CHECK:         %[[BLOCKS:.*]] = tensor.expand_shape %[[LINE]] {{.*}} : tensor<1024xf32> into tensor<4x256xf32>
// CHECK:         %[[SCALES:.*]] = tensor.collapse_shape %arg2 {{.*}} : tensor<1x4xf32> into tensor<4xf32>
// CHECK:         %[[R:.*]]:7 = kern.fusion row_reduction (%{{.*}} = %[[BLOCKS]] : tensor<4x256xf32>, {{.*}}) -> (tensor<4x256xf32>, tensor<4x256xi8>, tensor<4xf32>, tensor<4x256xi8>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
// CHECK:           arith.extsi %{{.*}} : i8 to i32
// CHECK:           arith.extui %{{.*}} : i8 to i32
// CHECK:           arith.maximumf
// CHECK:           arith.trunci %{{.*}} : i32 to i8
// CHECK-NOT:       tensor.extract
// CHECK:         } {source_ops = ["lm.adamw8bit_no_decay"]}
// CHECK:         tensor.expand_shape %[[R]]#2 {{.*}} : tensor<4xf32> into tensor<1x4xf32>
func.func @adamw8bit(%p: tensor<16x64xf32>, %c: tensor<16x64xi8>, %x: tensor<1x4xf32>, %s: tensor<f32>) -> (tensor<16x64xf32>, tensor<1x4xf32>) {
  %0:7 = lm.adamw8bit %p, %p, %c scale %x, %c scale %x norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<16x64xf32>, tensor<16x64xf32>, tensor<16x64xi8>, tensor<1x4xf32>, tensor<16x64xi8>, tensor<1x4xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<16x64xf32>, tensor<16x64xi8>, tensor<1x4xf32>, tensor<16x64xi8>, tensor<1x4xf32>, tensor<4xf32>, tensor<4xf32>)
  return %0#0, %0#2 : tensor<16x64xf32>, tensor<1x4xf32>
}

// So many sums are added in rows first; few, or of an odd count, are not.
// CHECK-LABEL: func.func @manySums(
// CHECK:         %[[ROWS:.*]] = tensor.expand_shape %arg0 {{.*}} : tensor<66560xf32> into tensor<65x1024xf32>
// CHECK:         kern.fusion row_reduction (%{{.*}} = %[[ROWS]] : tensor<65x1024xf32>) -> tensor<65xf32> {
// CHECK:         } {source_ops = ["lm.fold_sums"]}
// CHECK-NOT:     lm.fold_sums
// CHECK:         kern.fusion row_reduction (%{{.*}} = %{{.*}} : tensor<65602xf32>) -> tensor<f32> {
// CHECK:         } {source_ops = ["lm.norm"]}
func.func @manySums(%many: tensor<66560xf32>, %odd: tensor<65537xf32>) -> tensor<f32> {
  %0 = lm.norm_of_parts %many, %odd : (tensor<66560xf32>, tensor<65537xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// Newton-Schulz on a stack of two wide matrices in bf16: three batches of products and two kernels a step. Sums are f32.
// CHECK-LABEL: func.func @orthogonalize(
// CHECK-SAME:    %[[X:.*]]: tensor<8x8xbf16>,
// CHECK:         kern.fusion row_reduction ({{.*}} = %[[X]] : tensor<8x8xbf16>) -> tensor<8xf32>
// CHECK:         } {source_ops = ["lm.sum_squares"]}
// CHECK:         %[[N:.*]] = kern.fusion row_reduction ({{.*}} : tensor<2x4xf32>, {{.*}}) -> tensor<2xbf16>
// CHECK:         kern.fusion elementwise ({{.*}} : tensor<2x4x8xbf16>, {{.*}} = %[[N]] : tensor<2xbf16>) -> tensor<2x4x8xbf16>
// CHECK:         %[[U:.*]] = tensor.expand_shape %{{.*}} : tensor<64xbf16> into tensor<8x8xbf16>
// CHECK:         %[[A:.*]] = kern.gemm %[[U]], %[[U]] : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x4xbf16> {batch = 2 : i64, transpose_b}
// CHECK:         %[[AA:.*]] = kern.gemm %[[A]], %[[A]] : (tensor<8x4xbf16>, tensor<8x4xbf16>) -> tensor<8x4xf32> {batch = 2 : i64}
// CHECK:         %[[B:.*]] = kern.fusion elementwise ({{.*}} = %[[A]] : tensor<8x4xbf16>, {{.*}} = %[[AA]] : tensor<8x4xf32>) -> tensor<8x4xbf16>
// CHECK:         %[[BX:.*]] = kern.gemm %[[B]], %[[U]] : (tensor<8x4xbf16>, tensor<8x8xbf16>) -> tensor<8x8xf32> {batch = 2 : i64}
// CHECK:         kern.fusion elementwise ({{.*}} = %[[U]] : tensor<8x8xbf16>, {{.*}} = %[[BX]] : tensor<8x8xf32>) -> tensor<8x8xbf16>
// CHECK:         } {source_ops = ["lm.newton_schulz"]}
// CHECK-NOT:     kern.gemm
func.func @orthogonalize(%x: tensor<8x8xbf16>, %s: tensor<f32>) -> tensor<8x8xbf16> {
  %0 = lm.orthogonalize %x rows 4 eps %s : (tensor<8x8xbf16>, tensor<f32>) -> tensor<8x8xbf16> {ns_steps = 1 : i64}
  return %0 : tensor<8x8xbf16>
}

// A tall matrix is not copied: its products transpose it.
// CHECK-LABEL: func.func @orthogonalizeTall(
// CHECK:         kern.gemm %[[T:[^,]*]], %[[T]] : (tensor<6x4xf32>, tensor<6x4xf32>) -> tensor<4x4xf32> {transpose_a}
// CHECK:         kern.gemm %[[A:[^,]*]], %[[A]] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK:         kern.gemm %[[T]], %{{.*}} : (tensor<6x4xf32>, tensor<4x4xf32>) -> tensor<6x4xf32> {transpose_b}
func.func @orthogonalizeTall(%x: tensor<6x4xf32>, %s: tensor<f32>) -> tensor<6x4xf32> {
  %0 = lm.orthogonalize %x rows 6 eps %s : (tensor<6x4xf32>, tensor<f32>) -> tensor<6x4xf32> {ns_steps = 1 : i64}
  return %0 : tensor<6x4xf32>
}

// The gap between two matrices is zeros.
// CHECK-LABEL: func.func @scaleMatrices(
// CHECK:         kern.fusion elementwise ({{.*}} : tensor<4x4xbf16>) -> tensor<4x4xf32>
// CHECK:           arith.constant 2.000000e+00 : f32
// CHECK:         kern.fusion elementwise ({{.*}} : tensor<4x4xbf16>) -> tensor<8xf32>
// CHECK:         } {source_ops = ["lm.zeros"]}
// CHECK:         tensor.insert_slice %{{.*}} into %{{.*}}[16] [8] [1] : tensor<8xf32> into tensor<40xf32>
// CHECK:         tensor.insert_slice %{{.*}} into %{{.*}}[24] [16] [1] : tensor<16xf32> into tensor<40xf32>
func.func @scaleMatrices(%x: tensor<4x4xbf16>, %y: tensor<8x2xbf16>) -> tensor<40xf32> {
  %0 = lm.scale_matrices %x, %y : (tensor<4x4xbf16>, tensor<8x2xbf16>) -> tensor<40xf32> {matrices = [#lm.matrix<offset = 0, rows = 4, columns = 4, fan_in = 1>, #lm.matrix<offset = 24, rows = 8, columns = 2, fan_in = 2>]}
  return %0 : tensor<40xf32>
}

// The entropy of a router: sums over blocks of tokens, then over the blocks.
// CHECK-LABEL: func.func @routerFigures(
// CHECK-SAME:    %[[L:.*]]: tensor<128x4xbf16>, %[[C:.*]]: tensor<4xf32>, %[[M:.*]]: tensor<4xf32>)
// CHECK:         %[[P:.*]] = kern.fusion row_reduction ({{.*}} = %[[L]] : tensor<128x4xbf16>) -> tensor<2x4xf32>
// CHECK:         } {source_ops = ["lm.router_entropy"]}
// CHECK:         kern.fusion column_reduction ({{.*}} = %[[P]] : tensor<2x4xf32>) -> tensor<4xf32>
// CHECK:         kern.fusion elementwise ({{.*}} = %[[C]] : tensor<4xf32>, {{.*}} = %[[M]] : tensor<4xf32>) -> tensor<4xf32>
// CHECK:           arith.constant 5.000000e-01 : f32
// CHECK:         } {source_ops = ["lm.balance_terms"]}
func.func @routerFigures(%l: tensor<128x4xbf16>, %c: tensor<4xf32>, %m: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = lm.router_entropy %l : (tensor<128x4xbf16>) -> tensor<4xf32>
  %1 = lm.balance_terms %c, %m factor 5.0e-1 : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
