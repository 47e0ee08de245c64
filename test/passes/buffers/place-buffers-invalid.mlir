// The errors of the passes of passes/buffers.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics --plan-assign-buffers --plan-pack-arenas --plan-emit-commands --plan-check-aliasing

lm.variable @x input : tensor<8x8x2xf32> init none
func.func @columns() {
  %x = lm.load @x : tensor<8x8x2xf32>
  // expected-error @+1 {{'tensor.extract_slice' op is neither a range of rows nor a rectangle of a matrix}}
  %s = tensor.extract_slice %x[0, 0, 0] [8, 4, 2] [1, 1, 1] : tensor<8x8x2xf32> to tensor<8x4x2xf32>
  return
}

// -----

#ij = affine_map<(i, j) -> (i, j)>
#ji = affine_map<(i, j) -> (j, i)>
kern.kernel @transpose elementwise {
^bb0(%x: tensor<8x8xf32>):
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [#ji, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<8x8xf32>
  kern.yield %y : tensor<8x8xf32>
}
lm.variable @x input : tensor<8x8xf32> init none
func.func @kernel() {
  %x = lm.load @x : tensor<8x8xf32>
  // expected-error @+1 {{'kern.launch' op cannot be emitted: input 0 is not contiguous along the innermost dimension}}
  %y = kern.launch @transpose(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return
}

// -----

func.func @constant() {
  // expected-error @+1 {{'arith.constant' op has no command in a plan}}
  %c = arith.constant dense<0.0> : tensor<4xf32>
  return
}

// -----

lm.variable @x input : tensor<8x8xf32> init none
lm.variable @r scalar : tensor<4x4xf32> init none
func.func @stride() {
  %x = lm.load @x : tensor<8x8xf32>
  // expected-error @+1 {{'tensor.extract_slice' op is neither a range of rows nor a rectangle of a matrix}}
  %s = tensor.extract_slice %x[0, 0] [4, 8] [2, 1] : tensor<8x8xf32> to tensor<4x8xf32>
  %n = kern.gemm %s, %s : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32> {transpose_b}
  lm.store %n, @r : tensor<4x4xf32>
  return
}

// -----

lm.variable @x input : tensor<8x4x2xf32> init none
lm.variable @r scalar : tensor<8x8x2xf32> init none
func.func @columns() {
  %x = lm.load @x : tensor<8x4x2xf32>
  %r = lm.load @r : tensor<8x8x2xf32>
  // expected-error @+1 {{'tensor.insert_slice' op is neither a range of rows nor a rectangle of a matrix}}
  %s = tensor.insert_slice %x into %r[0, 4, 0] [8, 4, 2] [1, 1, 1] : tensor<8x4x2xf32> into tensor<8x8x2xf32>
  lm.store %s, @r : tensor<8x8x2xf32>
  return
}

// -----

lm.variable @r scalar : tensor<8x8xf32> init none
// expected-error @+1 {{has arguments or results; a function of a plan only has variables}}
func.func @args(%x: tensor<8x8xf32>) {
  %s = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %s, @r : tensor<8x8xf32>
  return
}

// -----

lm.variable @s gradient : tensor<2x8xf32> init none {anonymous}
// expected-error @+1 {{'lm.variable' op does not lie in its storage s of 'tensor<2x8xf32>'}}
lm.variable @a gradient : tensor<8xf32> init none {storage = @s, storage_offset = 9 : i64}

// -----

// expected-error @+1 {{'lm.variable' op is in the storage s, which is no variable outside of storages}}
lm.variable @a gradient : tensor<8xf32> init none {storage = @s, storage_offset = 0 : i64}

// -----

lm.variable @s gradient : tensor<2x8xf32> init none {anonymous}
lm.variable @a gradient : tensor<8xf32> init none {storage = @s, storage_offset = 8 : i64}
func.func @both() {
  %s = lm.load @s : tensor<2x8xf32>
  %p = tensor.extract_slice %s[0, 0] [1, 8] [1, 1] : tensor<2x8xf32> to tensor<8xf32>
  // expected-error @+1 {{'lm.store' op uses a where the function uses its storage s too}}
  lm.store %p, @a : tensor<8xf32>
  return
}

// -----

// expected-error @+1 {{has no body; a plan's functions are whole}}
func.func private @external(tensor<4xf32>) -> tensor<4xf32>
