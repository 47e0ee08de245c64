// kern-outline-kernels makes one kernel of all fusions with equal hero and region, and launches of the fusions.
// RUN: lmc-opt %s --kern-outline-kernels | FileCheck %s

// CHECK-NOT:   kern.fusion
// CHECK-LABEL: func.func @add(
// CHECK-SAME:    %[[X:[^ ]*]]: tensor<8xf32>, %[[Y:[^ ]*]]: tensor<8xf32>, %[[Z:[^ ]*]]: tensor<4xf32>)
// Equal ones share a kernel, whatever their operands and marks; its name is free of the
// function's.
// CHECK-NEXT:    %[[A:.*]] = kern.launch @[[ADD:add_[0-9]+]](%[[X]], %[[Y]]) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>{{$}}
// CHECK-NEXT:    %[[B:.*]] = kern.launch @[[ADD]](%[[A]], %[[A]]) : {{.*}} {backward}
// Another type, another hero or another region is another kernel.
// CHECK-NEXT:    %[[C:.*]] = kern.launch @[[TYPE:add_[0-9]+]](%[[Z]], %[[Z]]) :
// CHECK-NEXT:    %[[D:.*]] = kern.launch @[[HERO:add_[0-9]+]](%[[X]], %[[B]]) :
// CHECK-NEXT:    %[[E:.*]] = kern.launch @odd_name_sub(%[[X]], %[[D]]) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// Without names of model ops it is "kernel".
// CHECK-NEXT:    %[[F:.*]]:2 = kern.launch @kernel(%[[E]], %[[X]]) : (tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
// CHECK-NEXT:    return %[[F]]#1, %[[C]]

// CHECK-LABEL: func.func @other(
// CHECK-NEXT:    kern.launch @[[ADD]](

// CHECK:       kern.kernel @[[ADD]] elementwise attributes {source_ops = ["lm.add"]} {
// CHECK-NEXT:  ^bb0(%[[P:.*]]: tensor<8xf32>, %[[Q:.*]]: tensor<8xf32>):
// CHECK:         %[[S:.*]] = linalg.generic {{.*}} ins(%[[P]], %[[Q]] :
// CHECK:           arith.addf
// CHECK:         kern.yield %[[S]] : tensor<8xf32>
// CHECK:       kern.kernel @[[TYPE]] elementwise
// CHECK-NEXT:  ^bb0(%{{.*}}: tensor<4xf32>, %{{.*}}: tensor<4xf32>):
// CHECK:       kern.kernel @[[HERO]] row_reduction
// CHECK:       kern.kernel @odd_name_sub elementwise attributes {source_ops = ["lm.odd-name", "lm.sub"]} {
// CHECK:       kern.kernel @kernel elementwise {
// CHECK-NOT:   kern.kernel
#i = affine_map<(i) -> (i)>
func.func @add(%x: tensor<8xf32>, %y: tensor<8xf32>, %z: tensor<4xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
  %0 = kern.fusion elementwise (%a = %x : tensor<8xf32>, %b = %y : tensor<8xf32>) -> tensor<8xf32> {
    %e = tensor.empty() : tensor<8xf32>
    %r = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}
        ins(%a, %b : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%l: f32, %m: f32, %o: f32):
      %t = arith.addf %l, %m : f32
      linalg.yield %t : f32
    } -> tensor<8xf32>
    kern.yield %r : tensor<8xf32>
  } {source_ops = ["lm.add"]}
  %1 = kern.fusion elementwise (%c = %0 : tensor<8xf32>, %d = %0 : tensor<8xf32>) -> tensor<8xf32> {
    %e = tensor.empty() : tensor<8xf32>
    %r = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}
        ins(%c, %d : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%l: f32, %m: f32, %o: f32):
      %t = arith.addf %l, %m : f32
      linalg.yield %t : f32
    } -> tensor<8xf32>
    kern.yield %r : tensor<8xf32>
  } {backward, source_ops = ["lm.add"]}
  %2 = kern.fusion elementwise (%a = %z : tensor<4xf32>, %b = %z : tensor<4xf32>) -> tensor<4xf32> {
    %e = tensor.empty() : tensor<4xf32>
    %r = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}
        ins(%a, %b : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) {
    ^bb0(%l: f32, %m: f32, %o: f32):
      %t = arith.addf %l, %m : f32
      linalg.yield %t : f32
    } -> tensor<4xf32>
    kern.yield %r : tensor<4xf32>
  } {source_ops = ["lm.add"]}
  %3 = kern.fusion row_reduction (%a = %x : tensor<8xf32>, %b = %1 : tensor<8xf32>) -> tensor<8xf32> {
    %e = tensor.empty() : tensor<8xf32>
    %r = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}
        ins(%a, %b : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%l: f32, %m: f32, %o: f32):
      %t = arith.addf %l, %m : f32
      linalg.yield %t : f32
    } -> tensor<8xf32>
    kern.yield %r : tensor<8xf32>
  } {source_ops = ["lm.add"]}
  %4 = kern.fusion elementwise (%a = %x : tensor<8xf32>, %b = %3 : tensor<8xf32>) -> tensor<8xf32> {
    %e = tensor.empty() : tensor<8xf32>
    %r = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}
        ins(%a, %b : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%l: f32, %m: f32, %o: f32):
      %t = arith.subf %l, %m : f32
      linalg.yield %t : f32
    } -> tensor<8xf32>
    kern.yield %r : tensor<8xf32>
  } {source_ops = ["lm.odd-name", "lm.sub"]}
  %5:2 = kern.fusion elementwise (%a = %4 : tensor<8xf32>, %b = %x : tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    kern.yield %b, %a : tensor<8xf32>, tensor<8xf32>
  }
  return %5#1, %2 : tensor<8xf32>, tensor<4xf32>
}
func.func @other(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = kern.fusion elementwise (%a = %x : tensor<8xf32>, %b = %x : tensor<8xf32>) -> tensor<8xf32> {
    %e = tensor.empty() : tensor<8xf32>
    %r = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}
        ins(%a, %b : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%l: f32, %m: f32, %o: f32):
      %t = arith.addf %l, %m : f32
      linalg.yield %t : f32
    } -> tensor<8xf32>
    kern.yield %r : tensor<8xf32>
  } {source_ops = ["lm.add"]}
  return %0 : tensor<8xf32>
}
