// kern-form-fusions moves a fusion into the one that consumes its result, where one kernel can do both, and reports what it merged and what not, with the reason.
// RUN: lmc-opt %s -split-input-file --kern-convert-lm --kern-form-fusions=print-report | FileCheck %s
// RUN: lmc-opt %s -split-input-file --kern-convert-lm --kern-form-fusions=disable=siblings | FileCheck %s --check-prefix=ALONE
// RUN: lmc-opt %s -split-input-file --kern-convert-lm --kern-form-fusions=disable=producer,siblings | FileCheck %s --check-prefix=OFF
// RUN: not lmc-opt %s -split-input-file --kern-form-fusions=disable=all 2>&1 | FileCheck %s --check-prefix=KIND
// KIND: error: has no kind of fusion 'all'; choose producer, siblings, layers
// OFF-NOT: outcome
// OFF-NOT: source_ops = [{{.*}},

// A sum and its norm: one kernel that gives both, since the sum is needed elsewhere. The
// norm does not read it back, which is what is saved.
// CHECK:       fusions: 1
// CHECK-NEXT:    formed producer in bothKept: lm.add, lm.rms_norm, saves 128 bytes and 2.00004 us, times 1: row_reduction
// CHECK-NOT:     {{^}}  {{formed|refused}}
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
// CHECK:         formed producer in onlyUser: lm.add, lm.swiglu, saves 256 bytes and {{.*}}: elementwise{{$}}
// CHECK-LABEL: func.func @onlyUser(
// CHECK-NEXT:    %[[R:.*]] = kern.fusion elementwise ({{.*}}) -> tensor<4x8xf32> {
// CHECK:         } {backward, source_ops = ["lm.add", "lm.swiglu"]}
// CHECK-NEXT:    return %[[R]]
func.func @onlyUser(%x: tensor<4x8xf32>, %h: tensor<4x8xf32>, %u: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %s = lm.add %x, %h : tensor<4x8xf32>
  %y = lm.swiglu %s, %u : tensor<4x8xf32> {backward}
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
// Here b and then n are not written, nor read; a and then x are read once.
// CHECK:         formed producer in chain: lm.add, lm.add, saves 256 bytes
// CHECK-NEXT:    formed producer in chain: lm.rms_norm, lm.add, saves 256 bytes
// CHECK-NEXT:    formed producer in chain: lm.add+lm.add, lm.rms_norm+lm.add, saves 512 bytes
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

// CHECK:       fusions: 1
// CHECK-NEXT:    refused producer in otherLoops: lm.rms_norm, lm.sum_rows, would save 256 bytes and {{.*}}, times 1: a row_reduction and a column_reduction have different loops{{$}}
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
// CHECK:       fusions: 1
// CHECK-NEXT:    refused producer in usedBefore: lm.add, lm.add, would save 128 bytes and {{.*}}, times 1: the second one also needs what another op makes of the first one's result{{$}}
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
// CHECK:       fusions: 1
// CHECK-NEXT:    refused producer in cannotEmit: lm.add, lm.embedding, would save 256 bytes and {{.*}}, times 1: tensor.extract may only read an input of the region{{$}}
// CHECK-LABEL: func.func @cannotEmit(
// CHECK:         %[[N:.*]] = kern.fusion elementwise
// CHECK:         kern.fusion gather (%{{.*}} = %{{.*}}, %{{.*}} = %[[N]] :
func.func @cannotEmit(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %t: tensor<4xi32>) -> tensor<4x8xf32> {
  %n = lm.add %x, %y : tensor<4x8xf32>
  %s = lm.embedding %t, %n : (tensor<4xi32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %s : tensor<4x8xf32>
}

// -----

// The activation that the backward pass makes again and its gradient read the same gate and
// up: one kernel gives both. The product that reads the activation moves behind it.
// CHECK:         formed siblings in siblings: lm.swiglu, lm.swiglu_grad, saves 256 bytes and {{.*}}: elementwise{{$}}
// CHECK-LABEL: func.func @siblings(
// CHECK-SAME:    %[[G:[^ ]*]]: tensor<4x8xf32>, %[[U:[^ ]*]]: tensor<4x8xf32>, %[[D:[^ ]*]]: tensor<4x8xf32>)
// CHECK-NEXT:    %[[R:.*]]:3 = kern.fusion elementwise (%{{.*}} = %[[G]] : tensor<4x8xf32>, %{{.*}} = %[[U]] : tensor<4x8xf32>, %{{.*}} = %[[D]] : tensor<4x8xf32>)
// CHECK:         } {backward, source_ops = ["lm.swiglu", "lm.swiglu_grad"]}
// CHECK-NEXT:    kern.gemm %[[D]], %[[R]]#0
// CHECK-NEXT:    return %{{.*}}, %[[R]]#1, %[[R]]#2
// ALONE-LABEL: func.func @siblings(
// ALONE:         kern.fusion elementwise
// ALONE:         kern.gemm
// ALONE:         kern.fusion elementwise
func.func @siblings(%g: tensor<4x8xf32>, %u: tensor<4x8xf32>, %d: tensor<4x8xf32>) -> (tensor<8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %a = lm.swiglu %g, %u : tensor<4x8xf32> {backward}
  %w = lm.matmul %d, %a : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32> {transpose_a, backward}
  %dg, %du = lm.swiglu_grad %d, %g, %u : tensor<4x8xf32> {backward}
  return %w, %dg, %du : tensor<8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// What both compute is computed once: one sum of squares, of the norm and of its gradient.
// CHECK-LABEL: func.func @sharedWork(
// CHECK-COUNT-1: math.sqrt
// CHECK-NOT:     math.sqrt
// CHECK:         } {backward, source_ops = ["lm.rms_norm", "lm.rms_norm_grad"]}
func.func @sharedWork(%dy: tensor<4x8xf32>, %x: tensor<4x8xf32>, %g: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %n = lm.rms_norm %x, %g eps 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32> {backward}
  %dx, %dg = lm.rms_norm_grad %dy, %x, %g eps 1.0e-5 : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>) {backward}
  return %n, %dx : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Two equal columns of one matrix are one value.
// CHECK-LABEL: func.func @views(
// CHECK-COUNT-1: tensor.extract_slice
// CHECK-NEXT:    kern.fusion elementwise
// CHECK:         source_ops = ["lm.add", "lm.swiglu"]
func.func @views(%m: tensor<4x16xf32>, %x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %a = tensor.extract_slice %m[0, 8] [4, 8] [1, 1] : tensor<4x16xf32> to tensor<4x8xf32>
  %b = tensor.extract_slice %m[0, 8] [4, 8] [1, 1] : tensor<4x16xf32> to tensor<4x8xf32>
  %s = lm.add %a, %x : tensor<4x8xf32>
  %y = lm.swiglu %b, %b : tensor<4x8xf32>
  return %s, %y : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// Two arguments for which all calls pass the same are one.
// CHECK-LABEL: func.func private @arguments(
// CHECK-SAME:    %[[A:[^ ]*]]: tensor<4x8xf32>, %[[X:[^ ]*]]: tensor<4x8xf32>,
// CHECK-NEXT:    kern.fusion elementwise (%{{.*}} = %[[A]] : tensor<4x8xf32>, %{{.*}} = %[[X]] : tensor<4x8xf32>) ->
func.func private @arguments(%a: tensor<4x8xf32>, %x: tensor<4x8xf32>, %b: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %s = lm.add %a, %x : tensor<4x8xf32>
  %y = lm.swiglu %b, %b : tensor<4x8xf32>
  return %s, %y : tensor<4x8xf32>, tensor<4x8xf32>
}
func.func @calls(%m: tensor<4x8xf32>, %x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0:2 = call @arguments(%m, %x, %m) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
  return %0#0, %0#1 : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// A weight in common makes no siblings: there is next to nothing to save.
// CHECK:       fusions: 0{{$}}
// CHECK-LABEL: func.func @weightInCommon(
func.func @weightInCommon(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %g: tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %a = lm.rms_norm %x, %g eps 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %b = lm.rms_norm %y, %g eps 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return %a, %b : tensor<4x8xf32>, tensor<4x8xf32>
}

// -----

// The product, of 16 bytes, needs w's 32, x and z of 128 each, and the first sum; the second
// sum would be there as well.
// CHECK:         refused siblings in peak: lm.add, lm.add, {{.*}}: raises the peak of live bytes from 432 to 560{{$}}
// CHECK-LABEL: func.func @peak(
// CHECK-COUNT-2: kern.fusion elementwise
func.func @peak(%x: tensor<4x8xf32>, %z: tensor<4x8xf32>, %w: tensor<8x1xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x1xf32>) {
  %a = lm.add %x, %x : tensor<4x8xf32>
  %p = lm.matmul %a, %w : (tensor<4x8xf32>, tensor<8x1xf32>) -> tensor<4x1xf32>
  %s = lm.add %x, %z : tensor<4x8xf32>
  return %x, %z, %s, %p : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x1xf32>
}

// -----

// Nothing to merge: the report is there, and empty.
// CHECK:       fusions: 0{{$}}
// CHECK-LABEL: func.func @alone(
func.func @alone(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %n = lm.add %x, %x : tensor<4x8xf32>
  return %n : tensor<4x8xf32>
}

// -----

// A norm and the rotation of what it makes: the rotation reads the halves of a head before they are put together, so
// that one kernel does both and puts together its own result alone.
// CHECK:       fusions: 1
// CHECK-NEXT:    formed producer in rotatedNorm: lm.rms_norm, lm.rope, saves 256 bytes
// CHECK-LABEL: func.func @rotatedNorm(
// CHECK:         kern.fusion row_reduction
// CHECK-COUNT-2:   tensor.insert_slice
// CHECK-NOT:       tensor.insert_slice
// CHECK:         } {source_ops = ["lm.rms_norm", "lm.rope"]}
// CHECK-NOT:     kern.fusion
func.func @rotatedNorm(%x: tensor<4x8xf32>, %w: tensor<4xf32>, %cos: tensor<2x2xf32>, %sin: tensor<2x2xf32>) -> tensor<4x8xf32> {
  %0 = lm.rms_norm %x, %w eps 1.0e-5 : (tensor<4x8xf32>, tensor<4xf32>) -> tensor<4x8xf32>
  %1 = lm.rope %0, %cos, %sin head_dim 4 : (tensor<4x8xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}
