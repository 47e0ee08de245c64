// plan-pack-arenas places variables in @state, and packs buffers into @workspace by live ranges.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics --plan-pack-arenas | FileCheck %s
// RUN: lmc-opt %s -split-input-file -verify-diagnostics --plan-pack-arenas="reuse=false" | FileCheck %s --check-prefix=OWN

// CHECK:      plan.arena @state bytes 128 alignment 64 lower_bound 128
// CHECK-NEXT: plan.arena @workspace bytes 512 alignment 64 lower_bound 512
// OWN:        plan.arena @workspace bytes 768 alignment 64 lower_bound 768
// CHECK:      lm.variable @x {{.*}}plan.offset = 0 : i64
// CHECK:      lm.variable @y {{.*}}plan.offset = 64 : i64
lm.variable @x input : tensor<4xf32> init none
lm.variable @y input : tensor<16xf32> init none

// The third buffer can take the bytes of the first, which is dead by then. A buffer that is a
// variable's bytes, and a buffer that no op uses, take no bytes of @workspace.
// CHECK:      func.func @f() attributes {
// CHECK-SAME:   plan.offsets = array<i64: 0, [[A:0|256]], {{0|256}}, [[A]], 0>, plan.peak_bytes = 512 : i64
// OWN:        plan.peak_bytes = 768 : i64
func.func @f() attributes {plan.buffers = [
    #plan.buffer<bytes = 16, first = 0, last = 3, variable = "x">,
    #plan.buffer<bytes = 256, first = 0, last = 1>, #plan.buffer<bytes = 256, first = 1, last = 2>,
    #plan.buffer<bytes = 256, first = 2, last = 3>, #plan.buffer<bytes = 256>]} {
  return
}

// -----

// expected-error @+1 {{has no buffers; plan-assign-buffers runs first}}
func.func @unassigned() {
  return
}
