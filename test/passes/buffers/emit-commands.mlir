// plan-emit-commands makes a command of each op, and keeps the ops for plan-check-aliasing.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics --plan-emit-commands | FileCheck %s

#id = affine_map<(i) -> (i)>
kern.kernel @twice elementwise {
^bb0(%x: tensor<64xf32>):
  %e = tensor.empty() : tensor<64xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  kern.yield %y : tensor<64xf32>
}
plan.arena @state bytes 64 alignment 64 lower_bound 64
plan.arena @workspace bytes 512 alignment 64 lower_bound 512

// CHECK: plan.variable @x at @state[64] : tensor<64xf32>
lm.variable @x input : tensor<64xf32> init none {plan.offset = 64 : i64}

// A slice is live from the command that writes it (0) to the last command that reads it. A recorded
// copy runs before the command of its op.
// CHECK-LABEL: plan.function @f peak 512
// CHECK-DAG:     %[[X:.*]] = plan.variable_ref @x : <tensor<64xf32>>
// CHECK-DAG:     %[[A:.*]] = plan.slice @workspace[256] activations "" live[0, 2] : <tensor<64xf32>>
// CHECK:         plan.launch @twice items 64 {{.*}}(
// CHECK-NEXT:      in {{ *}}%[[X]] :
// CHECK-NEXT:      out {{ *}}%[[A]] :
// CHECK-NEXT:    )
// CHECK:         %[[C:.*]] = plan.slice @workspace[0] temporaries "" live[1, 2] : <tensor<64xf32>>
// CHECK:         plan.copy {{.*}}(
// CHECK-NEXT:      x {{ *}}%[[A]] :
// CHECK-NEXT:      d {{ *}}%[[C]] :
// CHECK-NEXT:    )
// CHECK:         plan.launch @twice {{.*}}(
// CHECK-NEXT:      in {{ *}}%[[A]] :
// CHECK-NEXT:      out {{ *}}%[[C]] :
// CHECK-NEXT:    )
// CHECK:       module @tensors
// CHECK:         kern.kernel @twice
// CHECK:         lm.variable @x
// CHECK:         func.func @f()
func.func @f() attributes {
    plan.buffers = [#plan.buffer<bytes = 256, first = 0, last = 2, variable = "x">,
                    #plan.buffer<bytes = 256, first = 1, last = 2, category = activations>,
                    #plan.buffer<bytes = 256, first = 2, last = 2>],
    plan.offsets = array<i64: 0, 256, 0>, plan.peak_bytes = 512 : i64} {
  %x = lm.load @x : tensor<64xf32> {plan.views = [#plan.view<buffer = 0>]}
  %a = kern.launch @twice(%x) : (tensor<64xf32>) -> tensor<64xf32> {plan.views = [#plan.view<buffer = 1>]}
  %b = kern.launch @twice(%a) : (tensor<64xf32>) -> tensor<64xf32> {
      plan.views = [#plan.view<buffer = 2>],
      plan.copies = [#plan.copy<from = <buffer = 1>, to = <buffer = 2>, type = tensor<64xf32>>]}
  return
}

// -----

// expected-error @+1 {{has no places for its buffers; plan-pack-arenas runs first}}
func.func @unpacked() attributes {plan.buffers = []} {
  return
}
