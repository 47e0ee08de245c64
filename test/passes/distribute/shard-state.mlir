// dist-shard-state declares the mesh before everything else; with one rank nothing is divided.
// RUN: lmc-opt %s --dist-shard-state | FileCheck %s
// RUN: lmc-opt %s --dist-shard-state="nodes=1 devices-per-node=1 hybrid=true" | FileCheck %s

// CHECK:      module {
// CHECK-NEXT:   dist.mesh @ranks(replicate = 1, shard = 1)
// CHECK-NEXT:   lm.variable @w parameter : tensor<8x4xf32> init zeros
// CHECK-NEXT: }
lm.variable @w parameter : tensor<8x4xf32> init zeros
