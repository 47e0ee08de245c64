// Where sharing bytes would let an op read wrong bytes, a copy is made.
// RUN: lmc-opt %s -split-input-file --plan-assign-buffers --plan-pack-arenas --plan-emit-commands --plan-check-aliasing | FileCheck %s
// RUN: lmc-opt %s -split-input-file --plan-assign-buffers=attach=false --plan-pack-arenas --plan-emit-commands=keep-tensors=false | FileCheck %s

// Two variables that trade places: both old values are set aside before either is written.
// CHECK-LABEL: plan.function @swap
// CHECK:         plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[A:.*]] :
// CHECK-NEXT:      d {{ *}}%[[OLD_A:.*]] :
// CHECK-NEXT:    )
// CHECK:         plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[B:.*]] :
// CHECK-NEXT:      d {{ *}}%[[OLD_B:.*]] :
// CHECK-NEXT:    )
// CHECK:         plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[OLD_A]] :
// CHECK-NEXT:      d {{ *}}%[[B]] :
// CHECK-NEXT:    )
// CHECK:         plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[OLD_B]] :
// CHECK-NEXT:      d {{ *}}%[[A]] :
// CHECK-NEXT:    )
lm.variable @a scalar : tensor<8x8xf32> init none
lm.variable @b scalar : tensor<8x8xf32> init none
func.func @swap() {
  %a = lm.load @a : tensor<8x8xf32>
  %b = lm.load @b : tensor<8x8xf32>
  lm.store %a, @b : tensor<8x8xf32>
  lm.store %b, @a : tensor<8x8xf32>
  return
}

// -----

// A load sees the state from before the first store, also after that store.
// CHECK-LABEL: plan.function @f
// CHECK:         plan.gemm {{.*}}(
// CHECK-NEXT:      a {{ *}}%[[W:.*]] :
// CHECK-NEXT:      b {{ *}}%[[W]] :
// CHECK-NEXT:      d {{ *}}%[[N:.*]] :
// CHECK-NEXT:    )
// CHECK:         plan.gemm {{.*}}(
// CHECK-NEXT:      a {{ *}}%[[W]] :
// CHECK-NEXT:      b {{ *}}%[[W]] :
// CHECK:         plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[N]] :
// CHECK-NEXT:      d {{ *}}%[[W]] :
// CHECK-NEXT:    )
lm.variable @w parameter : tensor<8x8xf32> init none
lm.variable @r scalar : tensor<8x8xf32> init none
func.func @f() {
  %w = lm.load @w : tensor<8x8xf32>
  %n = kern.gemm %w, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %n, @w : tensor<8x8xf32>
  %o = kern.gemm %w, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %o, @r : tensor<8x8xf32>
  return
}

// -----

// A product does not read the place that it is added to.
// CHECK-LABEL: plan.function @f
// CHECK:         plan.gemm {{.*}}(
// CHECK-NEXT:      a {{ *}}%[[X:.*]] :
// CHECK-NEXT:      b {{ *}}%[[X]] :
// CHECK-NEXT:      d {{ *}}%[[N:.*]] :
// CHECK-NEXT:    )
// CHECK:         plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[N]] :
// CHECK-NEXT:      d {{ *}}%[[SUM:.*]] :
// CHECK-NEXT:    )
// CHECK:         plan.gemm {accumulate} (
// CHECK-NEXT:      a {{ *}}%[[N]] :
// CHECK-NEXT:      b {{ *}}%[[X]] :
// CHECK-NEXT:      d {{ *}}%[[SUM]] :
// CHECK-NEXT:    )
lm.variable @x input : tensor<8x8xf32> init none
lm.variable @a scalar : tensor<8x8xf32> init none
func.func @f() {
  %x = lm.load @x : tensor<8x8xf32>
  %n = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %m = kern.gemm %n, %x acc %n : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %m, @a : tensor<8x8xf32>
  return
}

// -----

// A whole that is still read as it was is copied before rows of it are replaced.
// CHECK-LABEL: plan.function @f
// CHECK:         plan.gemm {{.*}}(
// CHECK-NEXT:      a {{ *}}%
// CHECK-NEXT:      b {{ *}}%
// CHECK-NEXT:      d {{ *}}%[[PART:.*]] :
// CHECK-NEXT:    )
// CHECK:         plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[R:.*]] : tensor<16x8xf32>
// CHECK-NEXT:      d {{ *}}%[[NEW:.*]] : tensor<16x8xf32>
// CHECK-NEXT:    )
// CHECK:         plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[PART]] : tensor<8x8xf32>
// CHECK-NEXT:      d {{ *}}%{{.*}} : tensor<8x8xf32>
// CHECK-NEXT:    )
// CHECK:         %[[OLD_ROWS:.*]] = plan.variable_ref @r : <tensor<8x8xf32>>
// CHECK:         plan.gemm {{.*}}(
// CHECK-NEXT:      a {{ *}}%[[OLD_ROWS]] :
// CHECK:         plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[NEW]] :
// CHECK-NEXT:      d {{ *}}%[[R]] :
// CHECK-NEXT:    )
lm.variable @x input : tensor<8x8xf32> init none
lm.variable @r scalar : tensor<16x8xf32> init none
func.func @f() {
  %x = lm.load @x : tensor<8x8xf32>
  %r = lm.load @r : tensor<16x8xf32>
  %a = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %0 = tensor.insert_slice %a into %r[0, 0] [8, 8] [1, 1] : tensor<8x8xf32> into tensor<16x8xf32>
  %s = tensor.extract_slice %r[0, 0] [8, 8] [1, 1] : tensor<16x8xf32> to tensor<8x8xf32>
  %b = kern.gemm %s, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %0, @r : tensor<16x8xf32>
  lm.store %b, @x : tensor<8x8xf32>
  return
}

// -----

// A result that nobody reads is written all the same: the other one is made elsewhere.
// CHECK-LABEL: plan.function @dead
// CHECK:         %[[X:.*]] = plan.slice @workspace[[[AT:[0-9]+]]] {{.*}} : <tensor<8x8xf32>>
// CHECK:         plan.gemm {{.*}}(
// CHECK-NEXT:      a {{ *}}%
// CHECK-NEXT:      b {{ *}}%
// CHECK-NEXT:      d {{ *}}%[[X]] :
// CHECK-NEXT:    )
// CHECK-NOT:     plan.slice @workspace[[[AT]]]
// CHECK:         %[[OTHER:.*]] = plan.slice @workspace
// CHECK-NEXT:    plan.launch @two {{.*}}(
// CHECK-NEXT:      in {{ *}}%[[X]] :
// CHECK-NEXT:      out {{ *}}%[[X]] :
// CHECK-NEXT:      out {{ *}}%[[OTHER]] :
// CHECK-NEXT:    )
#all = affine_map<(i, j) -> (i, j)>
kern.kernel @two elementwise {
^bb0(%x: tensor<8x8xf32>):
  %e = tensor.empty() : tensor<8x8xf32>
  %y:2 = linalg.generic {indexing_maps = [#all, #all, #all],
                         iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e, %e : tensor<8x8xf32>, tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32, %p: f32):
    %n = arith.negf %a : f32
    linalg.yield %n, %a : f32, f32
  } -> (tensor<8x8xf32>, tensor<8x8xf32>)
  kern.yield %y#0, %y#1 : tensor<8x8xf32>, tensor<8x8xf32>
}
lm.variable @a input : tensor<8x8xf32> init none
lm.variable @r scalar : tensor<8x8xf32> init none
func.func @dead() {
  %a = lm.load @a : tensor<8x8xf32>
  %x = kern.gemm %a, %a : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %y:2 = kern.launch @two(%x) : (tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)
  %z = kern.gemm %y#1, %a : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %z, @r : tensor<8x8xf32>
  return
}

// -----

// Two tensors are built from one tensor.empty, which has no contents: each has bytes of its own, and
// nothing is copied.
// CHECK-LABEL: plan.function @emptyTwice
// CHECK-NOT:     plan.copy
// CHECK-LABEL: plan.function @emptyTwiceEnd
lm.variable @x input : tensor<8x8xf32> init none
lm.variable @r scalar : tensor<16x8xf32> init none
lm.variable @s scalar : tensor<16x8xf32> init none
func.func @emptyTwice() {
  %x = lm.load @x : tensor<8x8xf32>
  %e = tensor.empty() : tensor<16x8xf32>
  %a = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %0 = tensor.insert_slice %a into %e[0, 0] [8, 8] [1, 1] : tensor<8x8xf32> into tensor<16x8xf32>
  %b = kern.gemm %x, %a : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = tensor.insert_slice %b into %0[8, 0] [8, 8] [1, 1] : tensor<8x8xf32> into tensor<16x8xf32>
  %2 = kern.gemm %1, %x : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  lm.store %2, @r : tensor<16x8xf32>
  %c = kern.gemm %b, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = tensor.insert_slice %c into %e[0, 0] [8, 8] [1, 1] : tensor<8x8xf32> into tensor<16x8xf32>
  %d = kern.gemm %x, %c : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %4 = tensor.insert_slice %d into %3[8, 0] [8, 8] [1, 1] : tensor<8x8xf32> into tensor<16x8xf32>
  %5 = kern.gemm %4, %x : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  lm.store %5, @s : tensor<16x8xf32>
  return
}
func.func @emptyTwiceEnd() {
  return
}

// -----

// The first insertion copies the whole, which is read later. The second part is computed before
// that copy, so it is copied into its place afterwards.
// CHECK-LABEL: plan.function @copiedWhole
// CHECK:         plan.gemm
// CHECK:         plan.gemm
// CHECK:         plan.copy
// CHECK:         plan.copy
// CHECK:         plan.copy
lm.variable @x input : tensor<8x8xf32> init none
lm.variable @r scalar : tensor<16x8xf32> init none
lm.variable @s scalar : tensor<16x8xf32> init none
func.func @copiedWhole() {
  %x = lm.load @x : tensor<8x8xf32>
  %old = lm.load @r : tensor<16x8xf32>
  %a = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %b = kern.gemm %x, %a : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %0 = tensor.insert_slice %a into %old[0, 0] [8, 8] [1, 1] : tensor<8x8xf32> into tensor<16x8xf32>
  %1 = tensor.insert_slice %b into %0[8, 0] [8, 8] [1, 1] : tensor<8x8xf32> into tensor<16x8xf32>
  %2 = kern.gemm %1, %x : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  lm.store %2, @s : tensor<16x8xf32>
  %3 = kern.gemm %old, %x : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  lm.store %3, @r : tensor<16x8xf32>
  return
}
