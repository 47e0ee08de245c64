// kern-split-column-reductions sums many rows in two stages; few rows, or a number of them that
// has no fitting divisor, in one.
// RUN: lmc-opt %s --kern-split-column-reductions | FileCheck %s
// RUN: lmc-opt %s --kern-split-column-reductions=min-rows=16 | FileCheck %s --check-prefix=SMALL

#rc = affine_map<(r, c) -> (r, c)>
#c = affine_map<(r, c) -> (c)>
#i = affine_map<(i) -> (i)>

// CHECK-DAG: #[[ROWS:.*]] = affine_map<(d0, d1, d2) -> (d0 * 64 + d1, d2)>
// CHECK-DAG: #[[COLUMN:.*]] = affine_map<(d0, d1, d2) -> (d2)>
// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0, d1, d2) -> (d1)>
// CHECK-DAG: #[[BLOCK:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>

// The term moves to the first stage, what it starts from and what becomes of it to the second;
// each takes the inputs it needs.
// CHECK-LABEL: func.func @weighted(
// CHECK-SAME:    %[[X:.*]]: tensor<8192x96xbf16>, %[[W:.*]]: tensor<96xf32>, %[[OLD:.*]]: tensor<96xf32>)
// CHECK:         %[[P:.*]] = kern.fusion row_reduction (%[[A:.*]] = %[[X]] : tensor<8192x96xbf16>, %[[B:.*]] = %[[W]] : tensor<96xf32>) -> tensor<128x96xf32> {
// CHECK:           %[[START:.*]] = linalg.fill {{.*}} -> tensor<128x96xf32>
// CHECK:           %[[S:.*]] = linalg.generic {indexing_maps = [#[[ROWS]], #[[COLUMN]], #[[ROW]], #[[BLOCK]]], iterator_types = ["parallel", "reduction", "parallel"]} ins(%[[A]], %[[B]], %{{.*}} : tensor<8192x96xbf16>, tensor<96xf32>, tensor<64xf32>) outs(%[[START]] : tensor<128x96xf32>) {
// CHECK:             arith.mulf
// CHECK:             arith.addf
// CHECK:           kern.yield %[[S]] : tensor<128x96xf32>
// CHECK:         } {backward, source_ops = ["lm.sum_rows"]}
// CHECK:         %[[R:.*]] = kern.fusion column_reduction (%[[C:.*]] = %[[OLD]] : tensor<96xf32>, %[[D:.*]] = %[[P]] : tensor<128x96xf32>) -> tensor<96xf32> {
// CHECK:           linalg.generic {{.*}} ins(%[[D]] : tensor<128x96xf32>)
// CHECK-NOT:         arith.mulf
// CHECK:             arith.addf %out, %in : f32
// CHECK:           linalg.generic {{.*}} ins(%[[C]], %
// CHECK:         } {backward, source_ops = ["lm.sum_rows"]}
// CHECK:         return %[[R]]
func.func @weighted(%x: tensor<8192x96xbf16>, %w: tensor<96xf32>, %old: tensor<96xf32>) -> tensor<96xf32> {
  %y = kern.fusion column_reduction (%a = %x : tensor<8192x96xbf16>, %b = %w : tensor<96xf32>,
                                     %c = %old : tensor<96xf32>) -> tensor<96xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<96xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<96xf32>) -> tensor<96xf32>
    %s = linalg.generic {indexing_maps = [#rc, #c, #c], iterator_types = ["reduction", "parallel"]}
        ins(%a, %b : tensor<8192x96xbf16>, tensor<96xf32>) outs(%f : tensor<96xf32>) {
    ^bb0(%v: bf16, %u: f32, %acc: f32):
      %g = arith.extf %v : bf16 to f32
      %p = arith.mulf %g, %u : f32
      %t = arith.addf %acc, %p : f32
      linalg.yield %t : f32
    } -> tensor<96xf32>
    %r = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}
        ins(%c, %s : tensor<96xf32>, tensor<96xf32>) outs(%e : tensor<96xf32>) {
    ^bb0(%v: f32, %u: f32, %o: f32):
      %t = arith.addf %v, %u : f32
      linalg.yield %t : f32
    } -> tensor<96xf32>
    kern.yield %r : tensor<96xf32>
  } {backward, source_ops = ["lm.sum_rows"]}
  return %y : tensor<96xf32>
}

// Two results of one reduction: both are made in blocks. 96 rows are few.
// CHECK-LABEL: func.func @largest(
// CHECK-NOT:     row_reduction
// CHECK:         kern.fusion column_reduction

// SMALL-LABEL: func.func @largest(
// SMALL:         %[[P:.*]]:2 = kern.fusion row_reduction {{.*}} -> (tensor<2x8xf32>, tensor<2x8xf32>) {
// SMALL-DAG:       arith.constant 0xFF800000 : f32
// SMALL-DAG:       arith.constant 0.000000e+00 : f32
// SMALL:           arith.maximumf
// SMALL:           arith.addf
// SMALL:         kern.fusion column_reduction (%{{.*}} = %[[P]]#0 : tensor<2x8xf32>, %{{.*}} = %[[P]]#1 : tensor<2x8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
// SMALL:           arith.maximumf
// SMALL:           arith.addf
func.func @largest(%x: tensor<96x8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %y:2 = kern.fusion column_reduction (%a = %x : tensor<96x8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %low = arith.constant 0xFF800000 : f32
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<8xf32>
    %f = linalg.fill ins(%low : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %g = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %s:2 = linalg.generic {indexing_maps = [#rc, #c, #c], iterator_types = ["reduction", "parallel"]}
        ins(%a : tensor<96x8xf32>) outs(%f, %g : tensor<8xf32>, tensor<8xf32>) {
    ^bb0(%v: f32, %max: f32, %sum: f32):
      %m = arith.maximumf %max, %v : f32
      %t = arith.addf %sum, %v : f32
      linalg.yield %m, %t : f32, f32
    } -> (tensor<8xf32>, tensor<8xf32>)
    kern.yield %s#0, %s#1 : tensor<8xf32>, tensor<8xf32>
  }
  return %y#0, %y#1 : tensor<8xf32>, tensor<8xf32>
}

// A prime number of rows, and a row's own index in the sum.
// SMALL-LABEL: func.func @prime(
// SMALL-NOT:     row_reduction
// SMALL:         return
func.func @prime(%x: tensor<97x8xf32>, %z: tensor<96x8xf32>) -> (tensor<8xf32>, tensor<8xi64>) {
  %y = kern.fusion column_reduction (%a = %x : tensor<97x8xf32>) -> tensor<8xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<8xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %s = linalg.generic {indexing_maps = [#rc, #c], iterator_types = ["reduction", "parallel"]}
        ins(%a : tensor<97x8xf32>) outs(%f : tensor<8xf32>) {
    ^bb0(%v: f32, %acc: f32):
      %t = arith.addf %acc, %v : f32
      linalg.yield %t : f32
    } -> tensor<8xf32>
    kern.yield %s : tensor<8xf32>
  }
  %n = kern.fusion column_reduction (%a = %z : tensor<96x8xf32>) -> tensor<8xi64> {
    %zero = arith.constant 0 : i64
    %e = tensor.empty() : tensor<8xi64>
    %f = linalg.fill ins(%zero : i64) outs(%e : tensor<8xi64>) -> tensor<8xi64>
    %s = linalg.generic {indexing_maps = [#rc, #c], iterator_types = ["reduction", "parallel"]}
        ins(%a : tensor<96x8xf32>) outs(%f : tensor<8xi64>) {
    ^bb0(%v: f32, %acc: i64):
      %j = linalg.index 0 : index
      %k = arith.index_cast %j : index to i64
      %t = arith.addi %acc, %k : i64
      linalg.yield %t : i64
    } -> tensor<8xi64>
    kern.yield %s : tensor<8xi64>
  }
  return %y, %n : tensor<8xf32>, tensor<8xi64>
}
