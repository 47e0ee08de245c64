// lm-pad-intermediate refuses MLPs that it does not know how to pad.
// RUN: lmc-opt %s --split-input-file --lm-pad-intermediate=multiple=8 --verify-diagnostics

func.func @no_linear_layers(%g: tensor<6x13xf32>, %u: tensor<6x13xf32>) -> tensor<6x13xf32> {
  // expected-error@+1 {{is not between linear layers, and lm-pad-intermediate does not know how to pad it}}
  %h = lm.swiglu %g, %u : tensor<6x13xf32>
  return %h : tensor<6x13xf32>
}

// -----

lm.variable @w parameter : tensor<13x4xf32> init zeros
lm.variable @down parameter : tensor<4x13xf32> init zeros
func.func @one_weight(%x: tensor<6x4xf32>) -> tensor<6x4xf32> {
  %w = lm.load @w : tensor<13x4xf32>
  %d = lm.load @down : tensor<4x13xf32>
  // expected-error@+1 {{reads a weight of an MLP that no lm.load reads for this op alone}}
  %g = lm.linear %x, %w : (tensor<6x4xf32>, tensor<13x4xf32>) -> tensor<6x13xf32>
  %u = lm.linear %x, %w : (tensor<6x4xf32>, tensor<13x4xf32>) -> tensor<6x13xf32>
  %h = lm.swiglu %g, %u : tensor<6x13xf32>
  %y = lm.linear %h, %d : (tensor<6x13xf32>, tensor<4x13xf32>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}
