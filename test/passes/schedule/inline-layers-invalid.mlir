// Every error of kern-inline-layers.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics --kern-inline-layers

func.func private @layer(%x: tensor<8xf32>) -> tensor<8xf32>
func.func @micro(%x: tensor<8xf32>) {
  // expected-error @+1 {{'func.call' op calls layer, which has no body}}
  %0 = call @layer(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func private @inner(%x: tensor<8xf32>) -> tensor<8xf32> {
  return %x : tensor<8xf32>
}
func.func private @outer(%x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error @+1 {{'func.call' op nests layers, which kern-inline-layers does not expect}}
  %0 = call @inner(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func @micro(%x: tensor<8xf32>) {
  %0 = call @outer(%x) : (tensor<8xf32>) -> tensor<8xf32>
  return
}
