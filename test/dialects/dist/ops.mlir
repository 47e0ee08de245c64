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
