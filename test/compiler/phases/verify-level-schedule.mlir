// After scheduling a function is one sequence of ops: it calls no other function.
// RUN: lmc-opt %s -split-input-file --verify-level="phase=schedule" -verify-diagnostics

func.func @layer(%x: tensor<4x8xf32>) -> tensor<4x4xf32> {
  %y = tensor.extract_slice %x[0, 0] [4, 4] [1, 1] : tensor<4x8xf32> to tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}

// -----

func.func private @layer(tensor<4x8xf32>) -> tensor<4x8xf32>
func.func @forward(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @below {{'func.call' op has no place after the phase schedule, which leaves launches of kernels, library calls, views of tensors, loads and stores in functions that call none}}
  %y = call @layer(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
