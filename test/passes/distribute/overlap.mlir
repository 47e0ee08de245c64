// dist-overlap starts all-gathers early and ends sums of gradients late.
// RUN: lmc-opt %s -split-input-file --dist-overlap | FileCheck %s
// RUN: lmc-opt %s -split-input-file --dist-overlap="gathers=0 reductions=0" | FileCheck %s --check-prefix=OFF
// RUN: lmc-opt %s -split-input-file --dist-overlap="gathers=2 reductions=2" | FileCheck %s --check-prefix=TWO
// RUN: not lmc-opt %s -split-input-file --dist-overlap=gathers=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE

// OFF-NOT: async
// OFF-NOT: dist.wait
// NEGATIVE: error: needs distances of at least 0, not -1 and 1

// Each weight is gathered while the product with the one before it is computed. Nothing is computed
// before the first product, so its weight stays as it is.

module {
  dist.mesh @ranks(replicate = 1, shard = 2)
  lm.variable @w0 compute_copy : tensor<2x4xf32> init none
  lm.variable @w1 compute_copy : tensor<2x4xf32> init none
  lm.variable @w2 compute_copy : tensor<2x4xf32> init none
  lm.variable @x input : tensor<4x4xf32> init none
  func.func @weights() {
    %x = lm.load @x : tensor<4x4xf32>
    %p0 = lm.load @w0 : tensor<2x4xf32>
    %w0 = dist.all_gather %p0 over @ranks shard : (tensor<2x4xf32>) -> tensor<4x4xf32> {layer = 0 : i64}
    %y0 = kern.gemm %x, %w0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %p1 = lm.load @w1 : tensor<2x4xf32>
    %w1 = dist.all_gather %p1 over @ranks shard : (tensor<2x4xf32>) -> tensor<4x4xf32> {layer = 1 : i64}
    %f1 = tensor.collapse_shape %w1 [[0, 1]] : tensor<4x4xf32> into tensor<16xf32>
    %v1 = tensor.expand_shape %f1 [[0, 1]] output_shape [4, 4] : tensor<16xf32> into tensor<4x4xf32>
    %z1 = kern.gemm %y0, %y0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %y1 = kern.gemm %z1, %v1 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %p2 = lm.load @w2 : tensor<2x4xf32>
    %w2 = dist.all_gather %p2 over @ranks shard : (tensor<2x4xf32>) -> tensor<4x4xf32> {backward, layer = 1 : i64}
    %y2 = kern.gemm %y1, %w2 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    lm.store %y2, @x : tensor<4x4xf32>
    return
  }
}

// CHECK-LABEL: func.func @weights()
// CHECK:         %[[W0:.*]] = dist.all_gather %{{.*}} {layer = 0 : i64}
// CHECK-NEXT:    %[[P1:.*]] = lm.load @w1
// CHECK-NEXT:    %[[S1:.*]] = dist.all_gather %[[P1]] over @ranks shard {{.*}} {async, layer = 1 : i64}
// CHECK-NEXT:    kern.gemm %{{.*}}, %[[W0]]
// CHECK-NEXT:    %[[P2:.*]] = lm.load @w2
// CHECK-NEXT:    %[[S2:.*]] = dist.all_gather %[[P2]] over @ranks shard {{.*}} {async, backward, layer = 1 : i64}
// CHECK-NEXT:    kern.gemm
// The wait comes before the first op that uses the weight; views follow it.
// CHECK-NEXT:    %[[W1:.*]] = dist.wait %[[S1]] of %[[P1]] : (tensor<4x4xf32>, tensor<2x4xf32>) -> tensor<4x4xf32> {layer = 1 : i64}
// CHECK-NEXT:    %[[F1:.*]] = tensor.collapse_shape %[[W1]]
// CHECK-NEXT:    %[[V1:.*]] = tensor.expand_shape %[[F1]]
// CHECK-NEXT:    kern.gemm %{{.*}}, %[[V1]]
// CHECK-NEXT:    %[[W2:.*]] = dist.wait %[[S2]] of %[[P2]] {{.*}} {backward, layer = 1 : i64}
// CHECK-NEXT:    kern.gemm %{{.*}}, %[[W2]]

// With a distance of 2, both others start at once.
// TWO-LABEL: func.func @weights()
// TWO:         dist.all_gather {{.*}} {layer = 0 : i64}
// TWO:         dist.all_gather {{.*}} {async, layer = 1 : i64}
// TWO:         dist.all_gather {{.*}} {async, backward, layer = 1 : i64}
// TWO-NEXT:    kern.gemm

// -----

// The sum of the first gradients ends where the second sum has started. Its all-reduce takes the
// unfinished result of its reduce-scatter. The last sum runs beside what the first one is added to.

module {
  dist.mesh @ranks(replicate = 2, shard = 2)
  lm.variable @a input : tensor<4x4xf32> init none
  lm.variable @g0 gradient : tensor<2x4xf32> init zeros
  lm.variable @g1 gradient : tensor<2x4xf32> init zeros
  kern.kernel @add elementwise {
  ^bb0(%x: tensor<2x4xf32>, %y: tensor<2x4xf32>):
    %e = tensor.empty() : tensor<2x4xf32>
    %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x, %y : tensor<2x4xf32>, tensor<2x4xf32>) outs(%e : tensor<2x4xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %s = arith.addf %a, %b : f32
      linalg.yield %s : f32
    } -> tensor<2x4xf32>
    kern.yield %0 : tensor<2x4xf32>
  }
  func.func @gradients() {
    %old0 = lm.load @g0 : tensor<2x4xf32>
    %old1 = lm.load @g1 : tensor<2x4xf32>
    %a = lm.load @a : tensor<4x4xf32>
    %d0 = kern.gemm %a, %a : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %r0 = dist.reduce_scatter %d0 over @ranks shard : (tensor<4x4xf32>) -> tensor<2x4xf32> {backward}
    %s0 = dist.all_reduce %r0 over @ranks replicate : (tensor<2x4xf32>) -> tensor<2x4xf32> {backward}
    %n0 = kern.launch @add(%old0, %s0) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32> {backward}
    lm.store %n0, @g0 : tensor<2x4xf32>
    %d1 = kern.gemm %a, %d0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %r1 = dist.reduce_scatter %d1 over @ranks shard : (tensor<4x4xf32>) -> tensor<2x4xf32> {backward}
    %s1 = dist.all_reduce %r1 over @ranks replicate : (tensor<2x4xf32>) -> tensor<2x4xf32> {backward}
    %n1 = kern.launch @add(%old1, %s1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32> {backward}
    lm.store %n1, @g1 : tensor<2x4xf32>
    return
  }
}

// CHECK-LABEL: func.func @gradients()
// CHECK:         %[[D0:.*]] = kern.gemm
// CHECK-NEXT:    %[[R0:.*]] = dist.reduce_scatter %[[D0]] over @ranks shard {{.*}} {async, backward}
// CHECK-NEXT:    %[[S0:.*]] = dist.all_reduce %[[R0]] over @ranks replicate {{.*}} {async, backward}
// CHECK-NEXT:    %[[D1:.*]] = kern.gemm
// CHECK-NEXT:    %[[R1:.*]] = dist.reduce_scatter %[[D1]] over @ranks shard {{.*}} {async, backward}
// CHECK-NEXT:    %[[S1:.*]] = dist.all_reduce %[[R1]] over @ranks replicate {{.*}} {async, backward}
// CHECK-NEXT:    %[[SUM:.*]] = dist.wait %[[S0]] of %[[D0]] : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32> {backward}
// CHECK-NEXT:    %[[N0:.*]] = kern.launch @add(%{{.*}}, %[[SUM]])
// CHECK-NEXT:    lm.store %[[N0]], @g0
// CHECK-NEXT:    dist.wait %[[S1]] of %[[D1]]

// -----

// A sum that the backward pass goes on with does not end late.

module {
  dist.mesh @ranks(replicate = 2, shard = 1)
  lm.variable @a input : tensor<4x4xf32> init none
  lm.variable @g gradient : tensor<4x4xf32> init zeros
  func.func @needed() {
    %a = lm.load @a : tensor<4x4xf32>
    %d = kern.gemm %a, %a : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %s = dist.all_reduce %d over @ranks replicate : (tensor<4x4xf32>) -> tensor<4x4xf32> {backward}
    %e = kern.gemm %a, %a : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32> {transpose_a}
    %f = kern.gemm %e, %s : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    lm.store %f, @g : tensor<4x4xf32>
    return
  }
}

// CHECK-LABEL: func.func @needed()
// CHECK-NOT:     async

// -----

// A sum in f16 ends late, too: its scale is known before it starts.

module {
  dist.mesh @ranks(replicate = 2, shard = 1)
  lm.variable @a input : tensor<4x4xf32> init none
  lm.variable @b input : tensor<4x4xf32> init none
  lm.variable @g gradient : tensor<4x4xf32> init zeros
  func.func @scaled() {
    %a = lm.load @a : tensor<4x4xf32>
    %d = kern.gemm %a, %a : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %max = lm.max_abs %d : (tensor<4x4xf32>) -> tensor<f32>
    %h = lm.scaled_cast %d, %max over 2 : (tensor<4x4xf32>, tensor<f32>) -> tensor<4x4xf16>
    %s = dist.all_reduce %h over @ranks replicate : (tensor<4x4xf16>) -> tensor<4x4xf16> {backward}
    %w = lm.scaled_cast %s, %max over 2 : (tensor<4x4xf16>, tensor<f32>) -> tensor<4x4xf32>
    lm.store %w, @g : tensor<4x4xf32>
    %e = kern.gemm %a, %a : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32> {transpose_a}
    lm.store %e, @b : tensor<4x4xf32>
    return
  }
}

// CHECK-LABEL: func.func @scaled()
// CHECK:         %[[S:.*]] = dist.all_reduce {{.*}} {async, backward}
// CHECK-NEXT:    kern.gemm
// CHECK:         %[[SUM:.*]] = dist.wait %[[S]]
// CHECK-NEXT:    lm.scaled_cast %[[SUM]]
