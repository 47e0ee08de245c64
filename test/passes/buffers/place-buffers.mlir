// The passes of this folder give every tensor its bytes and make a command of every op.
// RUN: lmc-opt %s -split-input-file --plan-assign-buffers --plan-pack-arenas --plan-emit-commands --plan-check-aliasing | FileCheck %s
// RUN: lmc-opt %s -split-input-file --plan-assign-buffers=attach=false --plan-pack-arenas --plan-emit-commands=keep-tensors=false | FileCheck %s

// State is laid out once, in the order of its variables, each at a multiple of 64 bytes.
// CHECK:       plan.arena @state bytes 640 alignment 64 lower_bound 640
// CHECK-NEXT:  plan.arena @workspace bytes 0 alignment 64 lower_bound 0
// CHECK-NEXT:  plan.variable @x at @state[0] : tensor<7xf32> input init none
// CHECK-NEXT:  plan.variable @y at @state[64] : tensor<f32> scalar init none
// CHECK-NEXT:  plan.variable @w at @state[128] : tensor<64xf32> parameter init ones {weight_decay}
// CHECK-NEXT:  plan.variable @w.grad at @state[384] : tensor<64xf32> gradient init zeros {parameter = "w"}
// CHECK-NEXT:  plan.function @nothing peak 0 {
// CHECK-NEXT:  }
// CHECK-NOT:   func.func
// CHECK-NOT:   lm.variable
lm.variable @x input : tensor<7xf32> init none
lm.variable @y scalar : tensor<f32> init none
lm.variable @w parameter : tensor<64xf32> init ones {weight_decay}
lm.variable @w.grad gradient : tensor<64xf32> init zeros {parameter = "w"}
func.func @nothing() {
  return
}

// -----

// A kernel writes over an input that dies there, but not over state; what is stored is
// made in the variable's place.
// CHECK:       plan.arena @workspace bytes 256 alignment 64 lower_bound 256
// CHECK-LABEL: plan.function @inPlace peak 256 {
// CHECK-DAG:     %[[X:.*]] = plan.variable_ref @x :
// CHECK-DAG:     %[[A:.*]] = plan.slice @workspace[0] temporaries "first" live[0, 2] : <tensor<64xf32>>
// CHECK:         plan.launch @double items 64 chunk 64 (
// CHECK-NEXT:      in {{ *}}%[[X]] :
// CHECK-NEXT:      out {{ *}}%[[A]] :
// CHECK-NEXT:    )
// CHECK-NEXT:    plan.launch @double {{.*}}(
// CHECK-NEXT:      in {{ *}}%[[A]] :
// CHECK-NEXT:      out {{ *}}%[[A]] :
// CHECK-NEXT:    )
// CHECK-NEXT:    %[[R:.*]] = plan.variable_ref @r :
// CHECK-NEXT:    plan.launch @double {{.*}}(
// CHECK-NEXT:      in {{ *}}%[[A]] :
// CHECK-NEXT:      out {{ *}}%[[R]] :
// CHECK-NEXT:    )
// CHECK-NEXT:  }
#i = affine_map<(i) -> (i)>
kern.kernel @double elementwise {
^bb0(%x: tensor<64xf32>):
  %e = tensor.empty() : tensor<64xf32>
  %y = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  kern.yield %y : tensor<64xf32>
}
lm.variable @x input : tensor<64xf32> init none
lm.variable @r scalar : tensor<64xf32> init none
func.func @inPlace() {
  %x = lm.load @x : tensor<64xf32>
  %a = kern.launch @double(%x) : (tensor<64xf32>) -> tensor<64xf32> loc("first")
  %b = kern.launch @double(%a) : (tensor<64xf32>) -> tensor<64xf32>
  %c = kern.launch @double(%b) : (tensor<64xf32>) -> tensor<64xf32>
  lm.store %c, @r : tensor<64xf32>
  return
}

// -----

// An input that is read again later is not written over.
// CHECK-LABEL: plan.function @stillRead peak 512 {
// CHECK-DAG:     %[[X:.*]] = plan.variable_ref @x :
// CHECK-DAG:     %[[A:.*]] = plan.slice @workspace[{{[0-9]+}}] temporaries "" live[0, 2] :
// CHECK:         plan.launch @double {{.*}}(
// CHECK-NEXT:      in {{ *}}%[[X]] :
// CHECK-NEXT:      out {{ *}}%[[A]] :
// CHECK-NEXT:    )
// CHECK-NEXT:    %[[B:.*]] = plan.slice @workspace[{{[0-9]+}}] temporaries "" live[1, 2] :
// CHECK-NEXT:    plan.launch @double {{.*}}(
// CHECK-NEXT:      in {{ *}}%[[A]] :
// CHECK-NEXT:      out {{ *}}%[[B]] :
// CHECK-NEXT:    )
// CHECK-NEXT:    %[[R:.*]] = plan.variable_ref @r :
// CHECK-NEXT:    plan.gemm {{.*}}(
// CHECK-NEXT:      a {{ *}}%[[A]] :
// CHECK-NEXT:      b {{ *}}%[[B]] :
// CHECK-NEXT:      d {{ *}}%[[R]] :
// CHECK-NEXT:    )
#ij = affine_map<(i, j) -> (i, j)>
kern.kernel @double elementwise {
^bb0(%x: tensor<8x8xf32>):
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<8x8xf32>
  kern.yield %y : tensor<8x8xf32>
}
lm.variable @x input : tensor<8x8xf32> init none
lm.variable @r scalar : tensor<8x8xf32> init none
func.func @stillRead() {
  %x = lm.load @x : tensor<8x8xf32>
  %a = kern.launch @double(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %b = kern.launch @double(%a) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %c = kern.gemm %a, %b : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %c, @r : tensor<8x8xf32>
  return
}

// -----

// An accumulator that is a variable stays in its place.
// CHECK-LABEL: plan.function @accumulate peak 0 {
// CHECK-DAG:     %[[G:.*]] = plan.variable_ref @g :
// CHECK-DAG:     %[[X:.*]] = plan.variable_ref @x :
// CHECK:         plan.gemm {accumulate, transpose_a} (
// CHECK-NEXT:      a {{ *}}%[[X]] :
// CHECK-NEXT:      b {{ *}}%[[X]] :
// CHECK-NEXT:      d {{ *}}%[[G]] :
// CHECK-NEXT:    )
// CHECK-NEXT:    %[[IDS:.*]] = plan.variable_ref @ids :
// CHECK-NEXT:    plan.scatter_add {accumulate} (
// CHECK-NEXT:      ids {{ *}}%[[IDS]] :
// CHECK-NEXT:      x {{ *}}%[[X]] :
// CHECK-NEXT:      d {{ *}}%[[G]] :
// CHECK-NEXT:    )
// CHECK-NOT:     plan.copy
// CHECK:       }
lm.variable @ids input : tensor<8xi32> init none
lm.variable @x input : tensor<8x8xf32> init none
lm.variable @g gradient : tensor<8x8xf32> init none
func.func @accumulate() {
  %ids = lm.load @ids : tensor<8xi32>
  %x = lm.load @x : tensor<8x8xf32>
  %g = lm.load @g : tensor<8x8xf32>
  %n = kern.gemm %x, %x acc %g : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> {transpose_a}
  %m = kern.scatter_add %ids, %x acc %n : (tensor<8xi32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %m, @g : tensor<8x8xf32>
  return
}

// -----

// An accumulation that starts here and is stored is made at the variable from the start.
// CHECK-LABEL: plan.function @accumulateFirst peak 0 {
// CHECK-DAG:     %[[G:.*]] = plan.variable_ref @g :
// CHECK-DAG:     %[[X:.*]] = plan.variable_ref @x :
// CHECK:         plan.gemm (
// CHECK-NEXT:      a {{ *}}%[[X]] :
// CHECK-NEXT:      b {{ *}}%[[X]] :
// CHECK-NEXT:      d {{ *}}%[[G]] :
// CHECK-NEXT:    )
// CHECK-NEXT:    plan.gemm {accumulate} (
// CHECK-NEXT:      a {{ *}}%[[X]] :
// CHECK-NEXT:      b {{ *}}%[[X]] :
// CHECK-NEXT:      d {{ *}}%[[G]] :
// CHECK-NEXT:    )
// CHECK-NEXT:  }
lm.variable @x input : tensor<8x8xf32> init none
lm.variable @g gradient : tensor<8x8xf32> init none
func.func @accumulateFirst() {
  %x = lm.load @x : tensor<8x8xf32>
  %n = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %m = kern.gemm %x, %x acc %n : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %m, @g : tensor<8x8xf32>
  return
}

// -----

// Somebody still reads the old accumulator: the sum is made in a copy, and copied back
// after that.
// CHECK-LABEL: plan.function @oldStillRead peak 256 {
// CHECK-DAG:     %[[SUM:.*]] = plan.slice @workspace[0] temporaries "" live[0, 3] :
// CHECK-DAG:     %[[G:.*]] = plan.variable_ref @g :
// CHECK:         plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[G]] :
// CHECK-NEXT:      d {{ *}}%[[SUM]] :
// CHECK-NEXT:    )
// CHECK:         plan.gemm {accumulate, transpose_a} (
// CHECK-NEXT:      a {{ *}}%[[X:.*]] :
// CHECK-NEXT:      b {{ *}}%[[X]] :
// CHECK-NEXT:      d {{ *}}%[[SUM]] :
// CHECK-NEXT:    )
// CHECK:         plan.launch @double {{.*}}(
// CHECK-NEXT:      in {{ *}}%[[G]] :
// CHECK-NEXT:      out {{ *}}%
// CHECK-NEXT:    )
// CHECK-NEXT:    plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[SUM]] :
// CHECK-NEXT:      d {{ *}}%[[G]] :
// CHECK-NEXT:    )
// CHECK-NEXT:  }
#ij = affine_map<(i, j) -> (i, j)>
kern.kernel @double elementwise {
^bb0(%x: tensor<8x8xf32>):
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<8x8xf32>
  kern.yield %y : tensor<8x8xf32>
}
lm.variable @x input : tensor<8x8xf32> init none
lm.variable @g gradient : tensor<8x8xf32> init none
lm.variable @r scalar : tensor<8x8xf32> init none
func.func @oldStillRead() {
  %x = lm.load @x : tensor<8x8xf32>
  %g = lm.load @g : tensor<8x8xf32>
  %n = kern.gemm %x, %x acc %g : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> {transpose_a}
  %old = kern.launch @double(%g) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %n, @g : tensor<8x8xf32>
  lm.store %old, @r : tensor<8x8xf32>
  return
}

// -----

// Parts are made where they are inserted, and row slices and reshapes are views: nothing
// is copied.
// CHECK:       plan.arena @workspace bytes 512 alignment 64
// CHECK-LABEL: plan.function @parts peak 512 {
// CHECK-DAG:     %[[X:.*]] = plan.variable_ref @x : <tensor<8x8xf32>>{{$}}
// CHECK-DAG:     %[[A:.*]] = plan.slice @workspace[0] temporaries "" live[0, 2] : <tensor<8x8xf32>>
// CHECK:         plan.launch @double {{.*}}(
// CHECK-NEXT:      in {{ *}}%[[X]] :
// CHECK-NEXT:      out {{ *}}%[[A]] :
// CHECK-NEXT:    )
// CHECK-NEXT:    %[[B:.*]] = plan.slice @workspace[256] temporaries "" live[0, 2] : <tensor<8x8xf32>>
// CHECK-NEXT:    plan.gemm {{.*}}(
// CHECK-NEXT:      a {{ *}}%[[X]] :
// CHECK-NEXT:      b {{ *}}%[[X]] :
// CHECK-NEXT:      d {{ *}}%[[B]] :
// CHECK-NEXT:    )
// CHECK-DAG:     %[[ROWS:.*]] = plan.variable_ref @x : <tensor<2x8xf32>> {offset = 64 : i64}
// CHECK-DAG:     %[[MIDDLE:.*]] = plan.slice @workspace[128] temporaries "" live[0, 2] : <tensor<8x8xf32>>
// CHECK-DAG:     %[[R:.*]] = plan.variable_ref @r :
// CHECK:         plan.gemm {{.*}}(
// CHECK-NEXT:      a {{ *}}%[[ROWS]] :
// CHECK-NEXT:      b {{ *}}%[[MIDDLE]] :
// CHECK-NEXT:      d {{ *}}%[[R]] :
// CHECK-NEXT:    )
// CHECK-NEXT:  }
#ij = affine_map<(i, j) -> (i, j)>
kern.kernel @double elementwise {
^bb0(%x: tensor<8x8xf32>):
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<8x8xf32>
  kern.yield %y : tensor<8x8xf32>
}
lm.variable @x input : tensor<8x8xf32> init none
lm.variable @r scalar : tensor<2x8xf32> init none
func.func @parts() {
  %x = lm.load @x : tensor<8x8xf32>
  %e = tensor.empty() : tensor<16x8xf32>
  %a = kern.launch @double(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %0 = tensor.insert_slice %a into %e[0, 0] [8, 8] [1, 1] : tensor<8x8xf32> into tensor<16x8xf32>
  %b = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = tensor.insert_slice %b into %0[8, 0] [8, 8] [1, 1] : tensor<8x8xf32> into tensor<16x8xf32>
  %flat = tensor.collapse_shape %1 [[0, 1]] : tensor<16x8xf32> into tensor<128xf32>
  %again = tensor.expand_shape %flat [[0, 1]] output_shape [16, 8] : tensor<128xf32> into tensor<16x8xf32>
  %middle = tensor.extract_slice %again[4, 0] [8, 8] [1, 1] : tensor<16x8xf32> to tensor<8x8xf32>
  %rows = tensor.extract_slice %x[2, 0] [2, 8] [1, 1] : tensor<8x8xf32> to tensor<2x8xf32>
  %c = kern.gemm %rows, %middle : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  lm.store %c, @r : tensor<2x8xf32>
  return
}

// -----

// A part that is inserted twice is copied the second time.
// CHECK-LABEL: plan.function @insertedTwice peak 512 {
// CHECK:         %[[A:.*]] = plan.slice @workspace[0] {{.*}} : <tensor<8x8xf32>>
// CHECK:         plan.gemm {{.*}}(
// CHECK-NEXT:      a {{ *}}%
// CHECK-NEXT:      b {{ *}}%
// CHECK-NEXT:      d {{ *}}%[[A]] :
// CHECK-NEXT:    )
// CHECK:         %[[B:.*]] = plan.slice @workspace[256] {{.*}} : <tensor<8x8xf32>>
// CHECK-NEXT:    plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[A]] :
// CHECK-NEXT:      d {{ *}}%[[B]] :
// CHECK-NEXT:    )
lm.variable @x input : tensor<8x8xf32> init none
lm.variable @r scalar : tensor<16x8xf32> init none
func.func @insertedTwice() {
  %x = lm.load @x : tensor<8x8xf32>
  %e = tensor.empty() : tensor<16x8xf32>
  %a = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %0 = tensor.insert_slice %a into %e[0, 0] [8, 8] [1, 1] : tensor<8x8xf32> into tensor<16x8xf32>
  %1 = tensor.insert_slice %a into %0[8, 0] [8, 8] [1, 1] : tensor<8x8xf32> into tensor<16x8xf32>
  %2 = kern.gemm %1, %x : (tensor<16x8xf32>, tensor<8x8xf32>) -> tensor<16x8xf32>
  lm.store %2, @r : tensor<16x8xf32>
  return
}

// -----

// A kernel may write a variable that it reads; a product may not: it is copied afterwards.
// CHECK-LABEL: plan.function @product peak 256 {
// CHECK-DAG:     %[[N:.*]] = plan.slice @workspace[0] temporaries "" live[0, 1] :
// CHECK-DAG:     %[[W:.*]] = plan.variable_ref @w :
// CHECK:         plan.gemm {{.*}}(
// CHECK-NEXT:      a {{ *}}%[[W]] :
// CHECK-NEXT:      b {{ *}}%[[W]] :
// CHECK-NEXT:      d {{ *}}%[[N]] :
// CHECK-NEXT:    )
// CHECK-NEXT:    plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[N]] :
// CHECK-NEXT:      d {{ *}}%[[W]] :
// CHECK-NEXT:    )
// CHECK-NEXT:  }
// CHECK-LABEL: plan.function @kernel peak 0 {
// CHECK-NEXT:    %[[W:.*]] = plan.variable_ref @w :
// CHECK-NEXT:    plan.launch @double {{.*}}(
// CHECK-NEXT:      in {{ *}}%[[W]] :
// CHECK-NEXT:      out {{ *}}%[[W]] :
// CHECK-NEXT:    )
// CHECK-NEXT:  }
#ij = affine_map<(i, j) -> (i, j)>
kern.kernel @double elementwise {
^bb0(%x: tensor<8x8xf32>):
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<8x8xf32>
  kern.yield %y : tensor<8x8xf32>
}
lm.variable @w parameter : tensor<8x8xf32> init none
func.func @product() {
  %w = lm.load @w : tensor<8x8xf32>
  %n = kern.gemm %w, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %n, @w : tensor<8x8xf32>
  return
}
func.func @kernel() {
  %w = lm.load @w : tensor<8x8xf32>
  %n = kern.launch @double(%w) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %n, @w : tensor<8x8xf32>
  return
}

// -----

// A value stored to two variables is made in the place of one and copied to the other.
// CHECK-LABEL: plan.function @storedTwice peak 0 {
// CHECK:         plan.launch @double {{.*}}(
// CHECK-NEXT:      in {{ *}}%[[X:.*]] :
// CHECK-NEXT:      out {{ *}}%[[A:.*]] :
// CHECK-NEXT:    )
// CHECK-NEXT:    %[[B:.*]] = plan.variable_ref @b :
// CHECK-NEXT:    plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[A]] :
// CHECK-NEXT:      d {{ *}}%[[B]] :
// CHECK-NEXT:    )
// CHECK-NEXT:  }
#ij = affine_map<(i, j) -> (i, j)>
kern.kernel @double elementwise {
^bb0(%x: tensor<8x8xf32>):
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<8x8xf32>
  kern.yield %y : tensor<8x8xf32>
}
lm.variable @x input : tensor<8x8xf32> init none
lm.variable @a scalar : tensor<8x8xf32> init none
lm.variable @b scalar : tensor<8x8xf32> init none
func.func @storedTwice() {
  %x = lm.load @x : tensor<8x8xf32>
  %n = kern.launch @double(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %n, @a : tensor<8x8xf32>
  lm.store %n, @b : tensor<8x8xf32>
  return
}

// -----

// Two variables trade places: one is made aside until the other has been read.
// CHECK-LABEL: plan.function @trade peak 256 {
// CHECK-DAG:     %[[B:.*]] = plan.variable_ref @b :
// CHECK-DAG:     %[[N:.*]] = plan.slice @workspace[0] temporaries "" live[0, 2] :
// CHECK:         plan.launch @double {{.*}}(
// CHECK-NEXT:      in {{ *}}%[[B]] :
// CHECK-NEXT:      out {{ *}}%[[N]] :
// CHECK-NEXT:    )
// CHECK-NEXT:    %[[A:.*]] = plan.variable_ref @a :
// CHECK-NEXT:    plan.launch @double {{.*}}(
// CHECK-NEXT:      in {{ *}}%[[A]] :
// CHECK-NEXT:      out {{ *}}%[[B]] :
// CHECK-NEXT:    )
// CHECK-NEXT:    plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[N]] :
// CHECK-NEXT:      d {{ *}}%[[A]] :
// CHECK-NEXT:    )
// CHECK-NEXT:  }
#ij = affine_map<(i, j) -> (i, j)>
kern.kernel @double elementwise {
^bb0(%x: tensor<8x8xf32>):
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<8x8xf32>
  kern.yield %y : tensor<8x8xf32>
}
lm.variable @a scalar : tensor<8x8xf32> init none
lm.variable @b scalar : tensor<8x8xf32> init none
func.func @trade() {
  %a = lm.load @a : tensor<8x8xf32>
  %b = lm.load @b : tensor<8x8xf32>
  %na = kern.launch @double(%b) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %nb = kern.launch @double(%a) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %na, @a : tensor<8x8xf32>
  lm.store %nb, @b : tensor<8x8xf32>
  return
}

// -----

// Buffers whose lives are disjoint share bytes. What the backward pass reads of the
// forward pass is an activation. The workspace is as large as the largest function needs.
// CHECK:       plan.arena @workspace bytes 512 alignment 64 lower_bound 512
// CHECK-LABEL: plan.function @reuse peak 512 {
// CHECK:         %[[A:.*]] = plan.slice @workspace{{\[}}[[#ATA:]]] temporaries "" live[0, 1] :
// CHECK:         plan.gemm {{.*}}(
// CHECK-NEXT:      a {{ *}}%[[X:.*]] :
// CHECK-NEXT:      b {{ *}}%[[X]] :
// CHECK-NEXT:      d {{ *}}%[[A]] :
// CHECK-NEXT:    )
// CHECK-NEXT:    %[[B:.*]] = plan.slice @workspace{{\[}}[[#ATB:]]] temporaries "" live[1, 2] :
// CHECK-NEXT:    plan.gemm {{.*}}(
// CHECK-NEXT:      a {{ *}}%[[A]] :
// CHECK-NEXT:      b {{ *}}%[[X]] :
// CHECK-NEXT:      d {{ *}}%[[B]] :
// CHECK-NEXT:    )
// CHECK-NEXT:    %[[C:.*]] = plan.slice @workspace{{\[}}[[#ATA]]] activations "" live[2, 3] :
// CHECK-NEXT:    plan.gemm {{.*}}(
// CHECK-NEXT:      a {{ *}}%[[B]] :
// CHECK-NEXT:      b {{ *}}%[[X]] :
// CHECK-NEXT:      d {{ *}}%[[C]] :
// CHECK-NEXT:    )
// CHECK-NEXT:    %[[R:.*]] = plan.variable_ref @r :
// CHECK-NEXT:    plan.gemm {{.*}}(
// CHECK-NEXT:      a {{ *}}%[[C]] :
// CHECK-NEXT:      b {{ *}}%[[X]] :
// CHECK-NEXT:      d {{ *}}%[[R]] :
// CHECK-NEXT:    )
// CHECK-LABEL: plan.function @small peak 256 {
lm.variable @x input : tensor<8x8xf32> init none
lm.variable @r scalar : tensor<8x8xf32> init none
func.func @reuse() {
  %x = lm.load @x : tensor<8x8xf32>
  %a = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %b = kern.gemm %a, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %c = kern.gemm %b, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %d = kern.gemm %c, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> {backward}
  lm.store %d, @r : tensor<8x8xf32>
  return
}
func.func @small() {
  %x = lm.load @x : tensor<8x8xf32>
  %a = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %b = kern.gemm %a, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %b, @r : tensor<8x8xf32>
  return
}

// -----

// Attention in bf16 takes an f32 workspace of the size of q for its gradient.
// CHECK-LABEL: plan.function @attention
// CHECK:         plan.attention {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 2 : i64, window = 0 : i64} (
// CHECK-NEXT:      q {{ *}}%[[Q:.*]] :
// CHECK-NEXT:      k {{ *}}%[[K:.*]] :
// CHECK-NEXT:      v {{ *}}%[[K]] :
// CHECK-NEXT:      out {{ *}}%[[O:.*]] :
// CHECK-NEXT:      lse {{ *}}%[[LSE:.*]] :
// CHECK-NEXT:    )
// CHECK:         %[[SCRATCH:.*]] = plan.slice @workspace[{{.*}}] library_workspace "grad" live[1, 1] : <tensor<4x8xf32>>
// CHECK:         plan.attention_grad {{.*}}(
// CHECK-NEXT:      q {{ *}}%[[Q]] :
// CHECK-NEXT:      k {{ *}}%[[K]] :
// CHECK-NEXT:      v {{ *}}%[[K]] :
// CHECK-NEXT:      out {{ *}}%[[O]] :
// CHECK-NEXT:      lse {{ *}}%[[LSE]] :
// CHECK-NEXT:      dout {{ *}}%[[O]] :
// CHECK-NEXT:      dq {{ *}}%[[DQ:.*]] :
// CHECK-NEXT:      dk {{ *}}%[[DK:.*]] :
// CHECK-NEXT:      dv {{ *}}%[[DV:.*]] :
// CHECK-NEXT:      workspace {{ *}}%[[SCRATCH]] :
// CHECK-NEXT:    )
lm.variable @q input : tensor<4x8xbf16> init none
lm.variable @k input : tensor<4x4xbf16> init none
func.func @attention() {
  %q = lm.load @q : tensor<4x8xbf16>
  %k = lm.load @k : tensor<4x4xbf16>
  %o, %lse = kern.attention %q, %k, %k : (tensor<4x8xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>) -> (tensor<4x8xbf16>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  %dq, %dk, %dv = kern.attention_grad %o, %q, %k, %k, %o, %lse : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>, tensor<4x8xbf16>, tensor<4x4xf32>) -> (tensor<4x8xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64} loc("grad")
  return
}

// -----

// With a document mask both directions read where documents start.
// CHECK-LABEL: plan.function @documents
// CHECK-DAG:     %[[Q:.*]] = plan.variable_ref @q :
// CHECK-DAG:     %[[S:.*]] = plan.variable_ref @starts : <tensor<4xi32>>
// CHECK:         plan.attention {{.*}}(
// CHECK-NEXT:      q {{ *}}%[[Q]] :
// CHECK-NEXT:      k {{ *}}%[[Q]] :
// CHECK-NEXT:      v {{ *}}%[[Q]] :
// CHECK-NEXT:      starts {{ *}}%[[S]] :
// CHECK-NEXT:      out {{ *}}%[[O:.*]] :
// CHECK-NEXT:      lse {{ *}}%[[LSE:.*]] :
// CHECK-NEXT:    )
// CHECK:         plan.attention_grad {{.*}}(
// CHECK-NEXT:      q {{ *}}%[[Q]] :
// CHECK-NEXT:      k {{ *}}%[[Q]] :
// CHECK-NEXT:      v {{ *}}%[[Q]] :
// CHECK-NEXT:      out {{ *}}%[[O]] :
// CHECK-NEXT:      lse {{ *}}%[[LSE]] :
// CHECK-NEXT:      dout {{ *}}%[[O]] :
// CHECK-NEXT:      starts {{ *}}%[[S]] :
// CHECK-NEXT:      dq {{ *}}%{{.*}} :
// CHECK-NEXT:      dk {{ *}}%{{.*}} :
// CHECK-NEXT:      dv {{ *}}%{{.*}} :
// CHECK-NEXT:      workspace {{ *}}%{{.*}} :
// CHECK-NEXT:    )
lm.variable @q input : tensor<4x8xbf16> init none
lm.variable @starts input : tensor<4xi32> init none
func.func @documents() {
  %q = lm.load @q : tensor<4x8xbf16>
  %s = lm.load @starts : tensor<4xi32>
  %o, %lse = kern.attention %q, %q, %q starts %s : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4xi32>) -> (tensor<4x8xbf16>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  %dq, %dk, %dv = kern.attention_grad %o, %q, %q, %q, %o, %lse starts %s : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4x4xf32>, tensor<4xi32>) -> (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4x8xbf16>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

// Members lie in their storage; the parts of a parameter travel along.
// CHECK:       plan.arena @state bytes 192 alignment 64 lower_bound 192
// CHECK:       plan.variable @before at @state[0] : tensor<3xf32> scalar
// CHECK-NEXT:  plan.variable @s at @state[64] : tensor<4x8xf32> gradient init none {anonymous}
// CHECK-NEXT:  plan.variable @b at @state[128] : tensor<2x4xf32> gradient init zeros {parts = [#lm.part<"b1", rows = 1, init = zeros>, #lm.part<"b2", rows = 1, init = zeros>]}
lm.variable @before scalar : tensor<3xf32> init none
lm.variable @s gradient : tensor<4x8xf32> init none {anonymous}
lm.variable @b gradient : tensor<2x4xf32> init zeros {storage = @s, storage_offset = 16 : i64, parts = [#lm.part<"b1", rows = 1, init = zeros>, #lm.part<"b2", rows = 1, init = zeros>]}
func.func @none() {
  return
}
