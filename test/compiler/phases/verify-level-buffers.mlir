// After buffers only commands, kernels and the mesh are left, and all that they name lies in memory.
// RUN: lmc-opt %s -split-input-file --verify-level="phase=buffers" -verify-diagnostics

dist.mesh @ranks(replicate = 1, shard = 1)
plan.arena @state bytes 128 alignment 64 lower_bound 128
plan.arena @workspace bytes 256 alignment 64 lower_bound 256
plan.variable @x at @state[0] : tensor<4x8xf32> input init none
plan.function @forward peak 256 {
  %x = plan.variable_ref @x : <tensor<4x8xf32>>
  %y = plan.slice @workspace[128] temporaries "" live[0, 0] : <tensor<4x8xf32>>
  // Columns: 4 runs of 16 bytes, 32 bytes apart, of which the last ends with the arena.
  %half = plan.slice @workspace[144] temporaries "" live[0, 0] : <tensor<4x4xf32>> {pitch = 32 : i64, rows = 4 : i64}
  plan.copy (
    x %x : tensor<4x8xf32>
    d %y : tensor<4x8xf32>
  )
}

// -----

// expected-error @below {{'func.func' op has no place after the phase buffers, which leaves commands on slices in plan.functions, and kernels}}
func.func @tensors(%x: tensor<4x8xf32>) {
  return
}

// -----

plan.function @tensors peak 0 {
  // expected-error @below {{'tensor.empty' op has no place after the phase buffers}}
  %0 = tensor.empty() : tensor<4x8xf32>
}

// -----

// expected-error @below {{'lm.variable' op has no place after the phase buffers}}
lm.variable @x input : tensor<4x8xf32> init none

// -----

plan.arena @workspace bytes 256 alignment 64 lower_bound 256
plan.function @beyond peak 256 {
  // expected-error @below {{'plan.slice' op takes 128 bytes from byte 192 of @workspace, which has 256}}
  %0 = plan.slice @workspace[192] temporaries "" live[0, 0] : <tensor<4x8xf32>>
}

// -----

plan.arena @workspace bytes 256 alignment 64 lower_bound 256
plan.function @beyond peak 256 {
  // expected-error @below {{'plan.slice' op takes 112 bytes from byte 160 of @workspace, which has 256}}
  %0 = plan.slice @workspace[160] temporaries "" live[0, 0] : <tensor<4x4xf32>> {pitch = 32 : i64, rows = 4 : i64}
}

// -----

plan.function @nowhere peak 0 {
  // expected-error @below {{'plan.slice' op lies in @workspace, which is not there}}
  %0 = plan.slice @workspace[0] temporaries "" live[0, 0] : <tensor<4x8xf32>>
}

// -----

plan.arena @state bytes 64 alignment 64 lower_bound 64
// expected-error @below {{'plan.variable' op takes 128 bytes from byte 0 of @state, which has 64}}
plan.variable @x at @state[0] : tensor<4x8xf32> input init none

// -----

plan.arena @state bytes 128 alignment 64 lower_bound 128
plan.variable @x at @state[0] : tensor<4x8xf32> input init none
plan.function @rows peak 0 {
  // expected-error @below {{'plan.variable_ref' op takes 64 bytes from byte 96 of @x, which has 128}}
  %0 = plan.variable_ref @x : <tensor<2x8xf32>> {offset = 96 : i64}
}

// -----

plan.arena @workspace bytes 256 alignment 64 lower_bound 256
plan.function @launches peak 256 {
  %x = plan.slice @workspace[0] temporaries "" live[0, 0] : <tensor<8xf32>>
  %y = plan.slice @workspace[64] temporaries "" live[0, 0] : <tensor<4x2xf32>>
  // expected-error @below {{'plan.launch' op runs @missing, which is not there}}
  plan.launch @missing items 8 chunk 8 (
    in %x : tensor<8xf32>
  )
}

// -----

plan.arena @workspace bytes 256 alignment 64 lower_bound 256
kern.kernel @negate elementwise {
^bb0(%a: tensor<8xf32>):
  kern.yield %a : tensor<8xf32>
}
plan.function @launches peak 256 {
  %x = plan.slice @workspace[0] temporaries "" live[0, 0] : <tensor<8xf32>>
  %y = plan.slice @workspace[64] temporaries "" live[0, 0] : <tensor<4x2xf32>>
  // expected-error @below {{'plan.launch' op has other inputs and results than @negate}}
  plan.launch @negate items 8 chunk 8 (
    in %x : tensor<8xf32>
  )
}

// -----

plan.arena @workspace bytes 256 alignment 64 lower_bound 256
kern.kernel @negate elementwise {
^bb0(%a: tensor<8xf32>):
  kern.yield %a : tensor<8xf32>
}
plan.function @launches peak 256 {
  %x = plan.slice @workspace[0] temporaries "" live[0, 0] : <tensor<8xf32>>
  %y = plan.slice @workspace[64] temporaries "" live[0, 0] : <tensor<4x2xf32>>
  // expected-error @below {{'plan.launch' op has other inputs and results than @negate}}
  plan.launch @negate items 8 chunk 8 (
    in %x : tensor<8xf32>
    in %x : tensor<8xf32>
  )
}

// -----

plan.arena @workspace bytes 256 alignment 64 lower_bound 256
kern.kernel @negate elementwise {
^bb0(%a: tensor<8xf32>):
  kern.yield %a : tensor<8xf32>
}
plan.function @launches peak 256 {
  %x = plan.slice @workspace[0] temporaries "" live[0, 0] : <tensor<8xf32>>
  %y = plan.slice @workspace[64] temporaries "" live[0, 0] : <tensor<4x2xf32>>
  // expected-error @below {{'plan.launch' op has other inputs and results than @negate}}
  plan.launch @negate items 8 chunk 8 (
    in %x : tensor<8xf32>
    out %y : tensor<4x2xf32>
  )
}
