// The scratch memory that commands need on a CUDA device, and not on the CPU.
// RUN: lmc-opt %s -split-input-file --plan-assign-buffers="target=cuda" --plan-pack-arenas --plan-emit-commands --plan-check-aliasing | FileCheck %s --check-prefixes=CHECK,CUDA
// RUN: lmc-opt %s -split-input-file --plan-assign-buffers="target=cpu" --plan-pack-arenas --plan-emit-commands --plan-check-aliasing | FileCheck %s --check-prefixes=CHECK,CPU
// RUN: not lmc-opt %s -split-input-file --plan-assign-buffers="target=tpu" --plan-pack-arenas --plan-emit-commands --plan-check-aliasing 2>&1 | FileCheck %s --check-prefix=TPU
// TPU: there is no target 'tpu': cpu or cuda

// Row sums of dout * out, one per token and head; on the CPU dq in f32.
// CHECK-LABEL: plan.function @attention
// CUDA:          %[[SCRATCH:.*]] = plan.slice @workspace[{{.*}}] library_workspace "grad" live[1, 1] : <tensor<4x4xf32>>
// CPU:           %[[SCRATCH:.*]] = plan.slice @workspace[{{.*}}] library_workspace "grad" live[1, 1] : <tensor<4x8xf32>>
// CHECK:         plan.attention_grad
// CHECK:           workspace {{ *}}%[[SCRATCH]] :
lm.variable @q input : tensor<4x8xbf16> init none
lm.variable @k input : tensor<4x4xbf16> init none
lm.variable @dq gradient : tensor<4x8xbf16> init none
lm.variable @dk gradient : tensor<4x4xbf16> init none
lm.variable @dv gradient : tensor<4x4xbf16> init none
func.func @attention() {
  %q = lm.load @q : tensor<4x8xbf16>
  %k = lm.load @k : tensor<4x4xbf16>
  %o, %lse = kern.attention %q, %k, %k : (tensor<4x8xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>) -> (tensor<4x8xbf16>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  %dq, %dk, %dv = kern.attention_grad %o, %q, %k, %k, %o, %lse : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>, tensor<4x8xbf16>, tensor<4x4xf32>) -> (tensor<4x8xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64} loc("grad")
  lm.store %dq, @dq : tensor<4x8xbf16>
  lm.store %dk, @dk : tensor<4x4xbf16>
  lm.store %dv, @dv : tensor<4x4xbf16>
  return
}

// -----

// In f32 too, where the CPU needs none.
// CHECK-LABEL: plan.function @attentionF32
// CUDA:          %[[SCRATCH:.*]] = plan.slice @workspace[{{.*}}] library_workspace "grad" live[1, 1] : <tensor<4x4xf32>>
// CUDA:          plan.attention_grad
// CUDA:            workspace {{ *}}%[[SCRATCH]] :
// CPU-NOT:       library_workspace
// CHECK:       }
lm.variable @q input : tensor<4x8xf32> init none
lm.variable @dq gradient : tensor<4x8xf32> init none
lm.variable @dk gradient : tensor<4x8xf32> init none
lm.variable @dv gradient : tensor<4x8xf32> init none
func.func @attentionF32() {
  %q = lm.load @q : tensor<4x8xf32>
  %o, %lse = kern.attention %q, %q, %q : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  %dq, %dk, %dv = kern.attention_grad %o, %q, %q, %q, %o, %lse : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64} loc("grad")
  lm.store %dq, @dq : tensor<4x8xf32>
  lm.store %dk, @dk : tensor<4x8xf32>
  lm.store %dv, @dv : tensor<4x8xf32>
  return
}

// -----

// Where tokens are sorted by id, and parts of sums wait: 64 bytes each of sorted ids and
// tokens (one pass), 32 counters of the one tile, a row of 8 f32 rounded up to 64 bytes.
// CHECK-LABEL: plan.function @scatter
// CUDA:          %[[SCRATCH:.*]] = plan.slice @workspace[{{.*}}] library_workspace "table" live[0, 0] : <tensor<320xi8>>
// CPU-NOT:       library_workspace
// CHECK:         %[[G:.*]] = plan.variable_ref @g
// CHECK:         %[[IDS:.*]] = plan.variable_ref @ids
// CUDA:          plan.scatter_add {accumulate} (
// CUDA-NEXT:       ids {{ *}}%[[IDS]] :
// CUDA-NEXT:       x {{ *}}%
// CUDA-NEXT:       d {{ *}}%[[G]] :
// CUDA-NEXT:       workspace {{ *}}%[[SCRATCH]] :
// CUDA-NEXT:     )
// CPU:           plan.scatter_add {accumulate} (
// CPU-NEXT:        ids {{ *}}%[[IDS]] :
// CPU-NEXT:        x {{ *}}%
// CPU-NEXT:        d {{ *}}%[[G]] :
// CPU-NEXT:      )
lm.variable @ids input : tensor<8xi32> init none
lm.variable @x input : tensor<8x8xbf16> init none
lm.variable @g gradient : tensor<30x8xf32> init none
func.func @scatter() {
  %ids = lm.load @ids : tensor<8xi32>
  %x = lm.load @x : tensor<8x8xbf16>
  %g = lm.load @g : tensor<30x8xf32>
  %m = kern.scatter_add %ids, %x acc %g : (tensor<8xi32>, tensor<8x8xbf16>, tensor<30x8xf32>) -> tensor<30x8xf32> loc("table")
  lm.store %m, @g : tensor<30x8xf32>
  return
}
