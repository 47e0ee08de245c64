// After fusion only variables, loads and stores are left of the model, and fusions are kernels.
// RUN: lmc-opt %s -split-input-file --verify-level="phase=fusion" -verify-diagnostics

lm.variable @x input : tensor<4x8xf32> init none
kern.kernel @copy elementwise {
^bb0(%x: tensor<4x8xf32>):
  %e = tensor.empty() : tensor<4x8xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4x8xf32>
  kern.yield %y : tensor<4x8xf32>
}
func.func private @layer(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %y = kern.launch @copy(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
func.func @forward() {
  %x = lm.load @x : tensor<4x8xf32>
  %y = call @layer(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  lm.store %y, @x : tensor<4x8xf32>
  return
}

// -----

func.func @model(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @below {{'lm.add' op has no place after the phase fusion, which leaves launches of kernels, library calls, views of tensors, loads and stores in functions}}
  %y = lm.add %x, %x : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func @apart(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %e = tensor.empty() : tensor<4x8xf32>
  // expected-error @below {{'linalg.generic' op has no place after the phase fusion}}
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func @inline(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @below {{'kern.fusion' op has no place after the phase fusion}}
  %y = kern.fusion elementwise (%a = %x : tensor<4x8xf32>) -> tensor<4x8xf32> {
    %e = tensor.empty() : tensor<4x8xf32>
    %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%b: f32, %o: f32):
      linalg.yield %b : f32
    } -> tensor<4x8xf32>
    kern.yield %s : tensor<4x8xf32>
  }
  return %y : tensor<4x8xf32>
}
