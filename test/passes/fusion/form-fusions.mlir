// kern-form-fusions moves a fusion into the one that consumes its result, where one kernel can do both, and says in kern.fusion_report what it did and why not.
// RUN: lmc-opt %s -split-input-file --kern-convert-lm --kern-form-fusions | FileCheck %s

// A sum and its norm: one kernel that gives both, since the sum is needed elsewhere. The
// norm does not read it back, which is what is saved.
// CHECK:       module attributes {kern.fusion_report = [{bytes = 128 : i64, consumer = "lm.rms_norm", function = "bothKept", outcome = "formed", producer = "lm.add"}]} {
// CHECK-LABEL: func.func @bothKept(
// CHECK-SAME:    %[[X:[^ ]*]]: tensor<4x8xf32>, %[[H:[^ ]*]]: tensor<4x8xf32>, %[[G:[^ ]*]]: tensor<8xf32>)
// CHECK-NEXT:    %[[R:.*]]:2 = kern.fusion row_reduction (%[[A:.*]] = %[[X]] : tensor<4x8xf32>, %[[B:.*]] = %[[H]] : tensor<4x8xf32>, %[[C:.*]] = %[[G]] : tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
// CHECK:           %[[S:.*]] = linalg.generic {{.*}} ins(%[[A]], %[[B]] :
// CHECK:             arith.addf
// CHECK:           %[[N:.*]] = linalg.generic {{.*}} ins(%[[S]], %{{.*}}, %[[C]] :
// CHECK:           kern.yield %[[S]], %[[N]]
// CHECK-NEXT:    } {source_ops = ["lm.add", "lm.rms_norm"]}
// CHECK-NOT:     kern.fusion
// CHECK:         return %[[R]]#0, %[[R]]#1
func.func @bothKept(%x: tensor<4x8xf32>, %h: tensor<4x8xf32>, %g: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %s = lm.add %x, %h : tensor<4x8xf32>
  %n = lm.rms_norm %s, %g eps 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return %s, %n : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// A sum that nobody else needs is not written either: twice its bytes are saved.
// CHECK:       {bytes = 256 : i64, consumer = "lm.swiglu", function = "onlyUser", outcome = "formed", producer = "lm.add"}
// CHECK-LABEL: func.func @onlyUser(
// CHECK-NEXT:    %[[R:.*]] = kern.fusion elementwise ({{.*}}) -> tensor<4x8xf32> {
// CHECK:         } {lm.backward, source_ops = ["lm.add", "lm.swiglu"]}
// CHECK-NEXT:    return %[[R]]
func.func @onlyUser(%x: tensor<4x8xf32>, %h: tensor<4x8xf32>, %u: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %s = lm.add %x, %h : tensor<4x8xf32>
  %y = lm.swiglu %s, %u : tensor<4x8xf32> {lm.backward}
  return %y : tensor<4x8xf32>
}

// -----

// What follows a reduction element by element becomes part of it.
// CHECK-LABEL: func.func @afterRows(
// CHECK:         kern.fusion row_reduction
// CHECK:         } {source_ops = ["lm.rms_norm", "lm.add"]}
// CHECK-NEXT:    return
func.func @afterRows(%x: tensor<4x8xf32>, %h: tensor<4x8xf32>, %g: tensor<8xf32>) -> tensor<4x8xf32> {
  %n = lm.rms_norm %x, %g eps 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %s = lm.add %n, %h : tensor<4x8xf32>
  return %s : tensor<4x8xf32>
}

// -----

// Merges repeat until there is nothing left to merge, most bytes first.
// CHECK:       kern.fusion_report = [{bytes = 256 : i64, consumer = "lm.rms_norm", {{.*}} producer = "lm.add"},
// CHECK-SAME:    {bytes = 256 : i64, consumer = "lm.add", {{.*}} producer = "lm.add+lm.rms_norm"}
// CHECK-SAME:    {bytes = 256 : i64, consumer = "lm.add+lm.rms_norm+lm.add", {{.*}} producer = "lm.add"}]
// CHECK-LABEL: func.func @chain(
// CHECK-NEXT:    %[[R:.*]] = kern.fusion row_reduction
// CHECK:         } {source_ops = ["lm.add", "lm.add", "lm.rms_norm", "lm.add"]}
// CHECK-NEXT:    return %[[R]]
func.func @chain(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %g: tensor<8xf32>) -> tensor<4x8xf32> {
  %a = lm.add %x, %y : tensor<4x8xf32>
  %b = lm.add %a, %x : tensor<4x8xf32>
  %n = lm.rms_norm %b, %g eps 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %c = lm.add %n, %a : tensor<4x8xf32>
  return %c : tensor<4x8xf32>
}

// -----

// CHECK:       kern.fusion_report = [{bytes = 256 : i64, consumer = "lm.sum_rows", function = "otherLoops", outcome = "refused", producer = "lm.rms_norm", reason = "a row_reduction and a column_reduction have different loops"}]
// CHECK-LABEL: func.func @otherLoops(
// CHECK:         %[[N:.*]] = kern.fusion row_reduction
// CHECK:         } {source_ops = ["lm.rms_norm"]}
// CHECK-NEXT:    kern.fusion column_reduction (%{{.*}} = %[[N]] :
// CHECK:         } {source_ops = ["lm.sum_rows"]}
func.func @otherLoops(%x: tensor<4x8xf32>, %g: tensor<8xf32>) -> tensor<8xf32> {
  %n = lm.rms_norm %x, %g eps 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %s = lm.sum_rows %n : (tensor<4x8xf32>) -> tensor<8xf32>
  return %s : tensor<8xf32>
}

// -----

// The product between the two reads what the first makes.
// CHECK:       kern.fusion_report = [{bytes = 128 : i64, consumer = "lm.add", function = "usedBefore", outcome = "refused", producer = "lm.add", reason = "another op needs the producer's result before the consumer runs"}]
// CHECK-LABEL: func.func @usedBefore(
// CHECK:         %[[N:.*]] = kern.fusion elementwise
// CHECK:         %[[P:.*]] = kern.gemm %[[N]],
// CHECK-NEXT:    kern.fusion elementwise (%{{.*}} = %[[N]] : {{.*}}, %{{.*}} = %[[P]] :
func.func @usedBefore(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %n = lm.add %x, %x : tensor<4x8xf32>
  %p = lm.linear %n, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %s = lm.add %n, %p : tensor<4x8xf32>
  return %s : tensor<4x8xf32>
}

// -----

// The hero has the last word.
// CHECK:       kern.fusion_report = [{bytes = 256 : i64, consumer = "lm.embedding", function = "cannotEmit", outcome = "refused", producer = "lm.add", reason = "tensor.extract may only read an input of the region"}]
// CHECK-LABEL: func.func @cannotEmit(
// CHECK:         %[[N:.*]] = kern.fusion elementwise
// CHECK:         kern.fusion gather (%{{.*}} = %{{.*}}, %{{.*}} = %[[N]] :
func.func @cannotEmit(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %t: tensor<4xi32>) -> tensor<4x8xf32> {
  %n = lm.add %x, %y : tensor<4x8xf32>
  %s = lm.embedding %t, %n : (tensor<4xi32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %s : tensor<4x8xf32>
}

// -----

// Nothing to merge: the report is there, and empty.
// CHECK:       module attributes {kern.fusion_report = []} {
// CHECK-LABEL: func.func @alone(
func.func @alone(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %n = lm.add %x, %x : tensor<4x8xf32>
  return %n : tensor<4x8xf32>
}
