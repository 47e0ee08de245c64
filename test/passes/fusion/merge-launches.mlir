// kern-merge-launches merges launches of kernels that inlining brought together, and makes each merged kernel once.
// RUN: lmc-opt %s -split-input-file --kern-convert-lm --kern-outline-kernels --kern-inline-layers --kern-merge-launches=print-report | FileCheck %s
// RUN: lmc-opt %s -split-input-file --kern-convert-lm --kern-outline-kernels --kern-inline-layers --kern-merge-launches=disable=layers | FileCheck %s --check-prefix=OFF
// RUN: lmc-opt %s -split-input-file --kern-convert-lm --kern-outline-kernels --kern-inline-layers --kern-merge-launches --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s --check-prefix=PLACE
// RUN: not lmc-opt %s -split-input-file --kern-merge-launches=disable=layer 2>&1 | FileCheck %s --check-prefix=KIND
// KIND: error: has no kind of fusion 'layer'; choose producer, siblings, layers

// Three layers that start with a norm and end with a sum. Both sums between layers join the norm
// that follows; the last sum has none. What is said twice is said once, with the number.
// CHECK:         formed producer in micro: lm.add, lm.rms_norm, saves 128 bytes and {{.*}}, times 2: row_reduction{{$}}
// CHECK-LABEL: func.func @micro(
// CHECK-SAME:    %[[X:[^ ]*]]: tensor<4x8xf32>, %[[G:[^ ]*]]: tensor<8xf32>, %[[W:[^ ]*]]: tensor<8x8xf32>)
// CHECK-NEXT:    %[[N0:.*]] = kern.launch @rms_norm(%[[X]], %[[G]])
// CHECK-NEXT:    %[[H0:.*]] = kern.gemm %[[N0]], %[[W]]
// CHECK-NEXT:    %[[R1:.*]]:2 = kern.launch @[[K:add_rms_norm]](%[[X]], %[[H0]], %[[G]])
// CHECK-NEXT:    %[[H1:.*]] = kern.gemm %[[R1]]#1, %[[W]]
// CHECK-NEXT:    %[[R2:.*]]:2 = kern.launch @[[K]](%[[R1]]#0, %[[H1]], %[[G]])
// CHECK-NEXT:    %[[H2:.*]] = kern.gemm %[[R2]]#1, %[[W]]
// CHECK-NEXT:    %[[Y:.*]] = kern.launch @add(%[[R2]]#0, %[[H2]])
// CHECK-NEXT:    return %[[Y]]
// CHECK:         kern.kernel @rms_norm row_reduction
// CHECK:         kern.kernel @add elementwise
// CHECK:         kern.kernel @add_rms_norm row_reduction
// CHECK-NOT:     kern.kernel
// CHECK:         module
// PLACE-LABEL: func.func @micro(
// PLACE:         kern.launch @rms_norm(%{{.*}} loc("layers.0/norm")
// PLACE:         kern.launch @add_rms_norm(%{{.*}} loc("layers.1/norm")
// PLACE:         kern.launch @add_rms_norm(%{{.*}} loc("layers.2/norm")
// PLACE:         kern.launch @add(%{{.*}} loc("layers.2/residual")
// OFF-LABEL: func.func @micro(
// OFF-COUNT-6: kern.launch
// OFF-NEXT:  return
func.func private @layer(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %n = lm.rms_norm %x, %g eps 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32> loc("norm")
  %h = lm.linear %n, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %y = lm.add %x, %h : tensor<4x8xf32> loc("residual")
  return %y : tensor<4x8xf32>
}
func.func @micro(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %0 = call @layer(%x, %g, %w) : (tensor<4x8xf32>, tensor<8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("layers.0")
  %1 = call @layer(%0, %g, %w) : (tensor<4x8xf32>, tensor<8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("layers.1")
  %2 = call @layer(%1, %g, %w) : (tensor<4x8xf32>, tensor<8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("layers.2")
  return %2 : tensor<4x8xf32>
}

// -----

// A merged kernel that is there already is used; kernels that lost their last launch go.
// CHECK-LABEL: func.func @existing(
// CHECK-NEXT:    %{{.*}}:2 = kern.launch @add_twice(
// CHECK-NEXT:    %{{.*}}:2 = kern.launch @add_twice(
// CHECK-NOT:     kern.kernel @add elementwise
// CHECK:         kern.kernel @add_twice elementwise
// CHECK-NOT:     kern.kernel
#map = affine_map<(d0) -> (d0)>
func.func @existing(%x: tensor<8xf32>, %y: tensor<8xf32>, %p: tensor<8xf32>, %q: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %s = kern.launch @add(%x, %y) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %t = kern.launch @add(%s, %y) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %u:2 = kern.launch @add_twice(%p, %q) : (tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
  return %s, %t, %u#0, %u#1 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
kern.kernel @add_twice elementwise {
^bb0(%x: tensor<8xf32>, %y: tensor<8xf32>):
  %e = tensor.empty() : tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]} ins(%x, %y : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %z = arith.addf %a, %b : f32
    linalg.yield %z : f32
  } -> tensor<8xf32>
  %t = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]} ins(%s, %y : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %z = arith.addf %a, %b : f32
    linalg.yield %z : f32
  } -> tensor<8xf32>
  kern.yield %s, %t : tensor<8xf32>, tensor<8xf32>
}
kern.kernel @add elementwise {
^bb0(%x: tensor<8xf32>, %y: tensor<8xf32>):
  %e = tensor.empty() : tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]} ins(%x, %y : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %z = arith.addf %a, %b : f32
    linalg.yield %z : f32
  } -> tensor<8xf32>
  kern.yield %s : tensor<8xf32>
}
