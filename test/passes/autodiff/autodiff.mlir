// lm-autodiff makes @micro, and of a layer its two halves; @eval keeps the plain graph.
// RUN: lmc-opt %s -split-input-file --lm-autodiff | FileCheck %s

lm.variable @x input : tensor<4x8xf32> {init = {kind = "none"}}
lm.variable @g parameter : tensor<8xf32> {init = {kind = "ones"}}
lm.variable @w parameter : tensor<8x8xf32> {init = {kind = "zeros"}, weight_decay}
lm.variable @head parameter : tensor<16x8xf32> {init = {kind = "zeros"}}
lm.variable @targets input : tensor<4xi32> {init = {kind = "none"}}
func.func private @layer(%x: tensor<4x8xf32>, %g: tensor<8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %n = lm.rms_norm %x, %g eps 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  %h = lm.linear %n, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %y = lm.add %x, %h : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<4x8xf32>
  %g = lm.load @g : tensor<8xf32>
  %w = lm.load @w : tensor<8x8xf32>
  %y = call @layer(%x, %g, %w) : (tensor<4x8xf32>, tensor<8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %z = call @layer(%y, %g, %w) : (tensor<4x8xf32>, tensor<8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %head = lm.load @head : tensor<16x8xf32>
  %t = lm.load @targets : tensor<4xi32>
  %loss = lm.linear_cross_entropy %z, %head, %t chunk 4 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A value used twice
lm.variable @w parameter : tensor<8x8xf32> {init = {kind = "zeros"}}
lm.variable @x input : tensor<4x8xf32> {init = {kind = "none"}}
lm.variable @head parameter : tensor<16x8xf32> {init = {kind = "zeros"}}
lm.variable @targets input : tensor<4xi32> {init = {kind = "none"}}
func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<4x8xf32>
  %w = lm.load @w : tensor<8x8xf32>
  %h = lm.linear %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %s = lm.swiglu %h, %h : tensor<4x8xf32>
  %head = lm.load @head : tensor<16x8xf32>
  %t = lm.load @targets : tensor<4xi32>
  %loss = lm.linear_cross_entropy %s, %head, %t chunk 4 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

lm.variable @ids input : tensor<4xi32> {init = {kind = "none"}}
lm.variable @e parameter : tensor<16x8xf32> {init = {kind = "zeros"}}
lm.variable @e.compute compute_copy : tensor<16x8xbf16> {init = {kind = "copy_of", source = "e"}, parameter = "e"}
func.func @forward() -> tensor<f32> {
  %ids = lm.load @ids : tensor<4xi32>
  %e = lm.load @e.compute : tensor<16x8xbf16>
  %x = lm.embedding %ids, %e : (tensor<4xi32>, tensor<16x8xbf16>) -> tensor<4x8xbf16>
  %loss = lm.linear_cross_entropy %x, %e, %ids chunk 4 : (tensor<4x8xbf16>, tensor<16x8xbf16>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// two uses of a layer weight within a layer, read result of the layer in backward
lm.variable @x input : tensor<4x8xf32> {init = {kind = "none"}}
lm.variable @w parameter : tensor<8x8xf32> {init = {kind = "zeros"}}
lm.variable @t input : tensor<4xi32> {init = {kind = "none"}}
func.func private @layer(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %h = lm.linear %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %y = lm.linear %h, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<4x8xf32>
  %w = lm.load @w : tensor<8x8xf32>
  %y = call @layer(%x, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %t = lm.load @t : tensor<4xi32>
  %loss = lm.linear_cross_entropy %y, %w, %t chunk 4 : (tensor<4x8xf32>, tensor<8x8xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}
