// The errors of plan-place-buffers.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics --plan-place-buffers

lm.variable @x input : tensor<8x8x2xf32> {init = {kind = "none"}}
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
lm.variable @x input : tensor<8x8xf32> {init = {kind = "none"}}
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

lm.variable @x input : tensor<8x8xf32> {init = {kind = "none"}}
lm.variable @r scalar : tensor<4x4xf32> {init = {kind = "none"}}
func.func @stride() {
  %x = lm.load @x : tensor<8x8xf32>
  // expected-error @+1 {{'tensor.extract_slice' op is neither a range of rows nor a rectangle of a matrix}}
  %s = tensor.extract_slice %x[0, 0] [4, 8] [2, 1] : tensor<8x8xf32> to tensor<4x8xf32>
  %n = kern.gemm %s, %s : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x4xf32> {transpose_b}
  lm.store %n, @r : tensor<4x4xf32>
  return
}

// -----

lm.variable @x input : tensor<8x4x2xf32> {init = {kind = "none"}}
lm.variable @r scalar : tensor<8x8x2xf32> {init = {kind = "none"}}
func.func @columns() {
  %x = lm.load @x : tensor<8x4x2xf32>
  %r = lm.load @r : tensor<8x8x2xf32>
  // expected-error @+1 {{'tensor.insert_slice' op is neither a range of rows nor a rectangle of a matrix}}
  %s = tensor.insert_slice %x into %r[0, 4, 0] [8, 4, 2] [1, 1, 1] : tensor<8x4x2xf32> into tensor<8x8x2xf32>
  lm.store %s, @r : tensor<8x8x2xf32>
  return
}

// -----

lm.variable @r scalar : tensor<8x8xf32> {init = {kind = "none"}}
// expected-error @+1 {{has arguments or results; a function of a plan only has variables}}
func.func @args(%x: tensor<8x8xf32>) {
  %s = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %s, @r : tensor<8x8xf32>
  return
}
