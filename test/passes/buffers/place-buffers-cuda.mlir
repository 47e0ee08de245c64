// The scratch memory that commands need on a CUDA device, and not on the CPU.
// RUN: lmc-opt %s -split-input-file --plan-assign-buffers="target=cuda gemm-workspace=1000" --plan-pack-arenas="alignment=256" --plan-emit-commands --plan-check-aliasing | FileCheck %s --check-prefixes=CHECK,CUDA
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

// -----

// What parts of a sum over k can take, in f32: here one part (k is at most 64) of 4 x 4 elements, two
// of 4 x 4, and two of 16 x 16, which is more than a product may have. All offsets are multiples of
// the alignment, so that the address of a workspace is one.
// CUDA:        plan.arena @workspace bytes {{.*}} alignment 256
// CPU:         plan.arena @workspace bytes {{.*}} alignment 64
// CHECK-LABEL: plan.function @gemms
// CPU-NOT:       library_workspace
// CUDA:          %[[ONE:.*]] = plan.slice @workspace[0] library_workspace "one" live[0, 0] : <tensor<64xi8>>
// CUDA:          plan.gemm
// CUDA:            workspace {{ *}}%[[ONE]] :
// CUDA:          %[[TWO:.*]] = plan.slice @workspace[0] library_workspace "two" live[1, 1] : <tensor<128xi8>>
// CUDA:          plan.gemm
// CUDA:            workspace {{ *}}%[[TWO]] :
// CUDA:          %[[LIMIT:.*]] = plan.slice @workspace[0] library_workspace "limit" live[2, 2] : <tensor<1000xi8>>
// CUDA:          plan.gemm
// CUDA:            workspace {{ *}}%[[LIMIT]] :
// CHECK:       }
lm.variable @a input : tensor<64x4xbf16> init none
lm.variable @b input : tensor<65x4xbf16> init none
lm.variable @c input : tensor<100x16xbf16> init none
lm.variable @one gradient : tensor<4x4xf32> init none
lm.variable @two gradient : tensor<4x4xf32> init none
lm.variable @limit gradient : tensor<16x16xf32> init none
func.func @gemms() {
  %a = lm.load @a : tensor<64x4xbf16>
  %b = lm.load @b : tensor<65x4xbf16>
  %c = lm.load @c : tensor<100x16xbf16>
  %one = kern.gemm %a, %a : (tensor<64x4xbf16>, tensor<64x4xbf16>) -> tensor<4x4xf32> {transpose_a} loc("one")
  %two = kern.gemm %b, %b : (tensor<65x4xbf16>, tensor<65x4xbf16>) -> tensor<4x4xf32> {transpose_a} loc("two")
  %limit = kern.gemm %c, %c : (tensor<100x16xbf16>, tensor<100x16xbf16>) -> tensor<16x16xf32> {transpose_a} loc("limit")
  lm.store %one, @one : tensor<4x4xf32>
  lm.store %two, @two : tensor<4x4xf32>
  lm.store %limit, @limit : tensor<16x16xf32>
  return
}
