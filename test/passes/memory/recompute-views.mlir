// Views hold what they are views of; collectives and effects run once.
// RUN: lmc-opt %s --lm-analyze-recompute | FileCheck %s
// RUN: lmc-opt %s --lm-apply-recompute=mode=none | FileCheck %s --check-prefix=NONE
// RUN: lmc-opt %s --lm-apply-recompute=mode=block | FileCheck %s --check-prefix=BLOCK

// Both slices of %r hold its 256 bytes, once; the gathered weight has 256.
// CHECK: lm.recompute_options
// CHECK-SAME: kept_bytes = 512 : i64, name = "none", ops = ["lm.swiglu"]
// CHECK-SAME: kept_bytes = 256 : i64, name = "full", ops = ["gate_up", "tensor.extract_slice", "tensor.extract_slice", "lm.swiglu"]
// The all-gather is not run again, so its result is kept.
// CHECK-SAME: kept_bytes = 256 : i64, name = "block", ops = ["gate_up", "tensor.extract_slice", "tensor.extract_slice", "lm.swiglu"]

dist.mesh @ranks(replicate = 1, shard = 2)
lm.variable @x input : tensor<4x8xf32> init none
lm.variable @w parameter : tensor<4x8xf32> init zeros
lm.variable @wgu parameter : tensor<16x8xf32> init zeros

func.func private @layer(%x: tensor<4x8xf32>, %w: tensor<4x8xf32>, %wgu: tensor<16x8xf32>) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}

// "none" keeps the slices themselves, so that the backward half need not cut them again.
// NONE-LABEL: func.func private @layer.forward.none(
// NONE:       %[[G:.*]] = tensor.extract_slice {{.*}}[0, 0]
// NONE:       %[[U:.*]] = tensor.extract_slice {{.*}}[0, 8]
// NONE:       return %{{.*}}, %[[G]], %[[U]], %{{.*}}
// BLOCK-LABEL: func.func private @layer.forward.block(
// BLOCK:       %[[W:.*]] = dist.all_gather
// BLOCK:       return %{{.*}}, %[[W]] : tensor<4x8xf32>, tensor<8x8xf32>
func.func private @layer.forward(%x: tensor<4x8xf32>, %w: tensor<4x8xf32>, %wgu: tensor<16x8xf32>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<8x8xf32>) {
  %full = dist.all_gather %w over @ranks shard : (tensor<4x8xf32>) -> tensor<8x8xf32>
  %r = lm.linear %x, %wgu : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32> loc("gate_up")
  %g = tensor.extract_slice %r[0, 0] [4, 8] [1, 1] : tensor<4x16xf32> to tensor<4x8xf32>
  %u = tensor.extract_slice %r[0, 8] [4, 8] [1, 1] : tensor<4x16xf32> to tensor<4x8xf32>
  %a = lm.swiglu %g, %u : tensor<4x8xf32>
  %y = lm.linear %a, %full : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %y, %a, %g, %u, %full : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<8x8xf32>
}

// NONE-LABEL: func.func private @layer.backward.none(
// NONE-NOT:   tensor.extract_slice
// NONE:       lm.swiglu
// NONE-NOT:   tensor.extract_slice
// NONE:       return
// BLOCK-LABEL: func.func private @layer.backward.block(
// BLOCK:       %[[R:.*]] = lm.linear {{.*}} -> tensor<4x16xf32>
// BLOCK-DAG:   %[[G:.*]] = tensor.extract_slice %[[R]][0, 0]
// BLOCK-DAG:   %[[U:.*]] = tensor.extract_slice %[[R]][0, 8]
// BLOCK:       lm.swiglu %[[G]], %[[U]]
// BLOCK-NOT:   dist.all_gather
// BLOCK:       return
func.func private @layer.backward(%dy: tensor<4x8xf32>, %a: tensor<4x8xf32>, %g: tensor<4x8xf32>,
                                  %u: tensor<4x8xf32>, %full: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<4x8xf32>) {
  %dw = lm.matmul %dy, %a : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32> {transpose_a}
  %da = lm.matmul %dy, %full : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %dg, %du = lm.swiglu_grad %da, %g, %u : tensor<4x8xf32>
  %sum = lm.add %dg, %du : tensor<4x8xf32>
  return %dw, %sum : tensor<8x8xf32>, tensor<4x8xf32>
}

func.func @micro_first() {
  %x = lm.load @x : tensor<4x8xf32>
  %w = lm.load @w : tensor<4x8xf32>
  %wgu = lm.load @wgu : tensor<16x8xf32>
  %y:5 = call @layer.forward(%x, %w, %wgu) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<16x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<8x8xf32>)
  %d:2 = call @layer.backward(%y#0, %y#1, %y#2, %y#3, %y#4) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<4x8xf32>)
  return
}
