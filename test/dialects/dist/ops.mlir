// Every op of the dist dialect prints, parses and prints the same.
// RUN: lmc-opt %s | lmc-opt | FileCheck %s
// RUN: lmc-opt %s --mlir-print-op-generic | lmc-opt | FileCheck %s

// CHECK: dist.mesh @ranks(replicate = 2, shard = 4)
dist.mesh @ranks(replicate = 2, shard = 4)

// CHECK-LABEL: func.func @collectives(
// CHECK-SAME:    %[[X:.*]]: tensor<8x4xf32>)
func.func @collectives(%x: tensor<8x4xf32>) {
  // CHECK: dist.all_gather %[[X]] over @ranks shard : (tensor<8x4xf32>) -> tensor<32x4xf32>
  %0 = dist.all_gather %x over @ranks shard : (tensor<8x4xf32>) -> tensor<32x4xf32>
  // CHECK: dist.reduce_scatter %[[X]] over @ranks shard : (tensor<8x4xf32>) -> tensor<2x4xf32>
  %1 = dist.reduce_scatter %x over @ranks shard : (tensor<8x4xf32>) -> tensor<2x4xf32>
  // CHECK: dist.all_gather %[[X]] over @ranks replicate : (tensor<8x4xf32>) -> tensor<16x4xf32>
  %2 = dist.all_gather %x over @ranks replicate : (tensor<8x4xf32>) -> tensor<16x4xf32>
  // CHECK: dist.all_reduce %[[X]] over @ranks replicate : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %3 = dist.all_reduce %x over @ranks replicate : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// CHECK-LABEL: func.func @beside(
// CHECK-SAME:    %[[X:.*]]: tensor<8x4xf32>)
func.func @beside(%x: tensor<8x4xf32>) {
  // CHECK: %[[S:.*]] = dist.reduce_scatter %[[X]] over @ranks shard : (tensor<8x4xf32>) -> tensor<2x4xf32> {async, backward}
  %0 = dist.reduce_scatter %x over @ranks shard : (tensor<8x4xf32>) -> tensor<2x4xf32> {async, backward}
  // CHECK: %[[T:.*]] = dist.all_reduce %[[S]] over @ranks replicate : (tensor<2x4xf32>) -> tensor<2x4xf32> {async, backward}
  %1 = dist.all_reduce %0 over @ranks replicate : (tensor<2x4xf32>) -> tensor<2x4xf32> {async, backward}
  // CHECK: dist.wait %[[T]] of %[[X]] : (tensor<2x4xf32>, tensor<8x4xf32>) -> tensor<2x4xf32> {backward}
  %2 = dist.wait %1 of %x : (tensor<2x4xf32>, tensor<8x4xf32>) -> tensor<2x4xf32> {backward}
  // CHECK: %[[R:.*]] = dist.all_reduce %[[X]] over @ranks replicate : (tensor<8x4xf32>) -> tensor<8x4xf32> {async}
  %3 = dist.all_reduce %x over @ranks replicate : (tensor<8x4xf32>) -> tensor<8x4xf32> {async}
  // CHECK: dist.wait %[[R]] : (tensor<8x4xf32>) -> tensor<8x4xf32>
  %4 = dist.wait %3 : (tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}
