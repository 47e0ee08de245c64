// Every error of lm-autodiff.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics --lm-autodiff

// expected-error @+1 {{'builtin.module' op needs a function @forward without arguments and with one result, the loss}}
module {
  func.func @eval() {
    return
  }
}

// -----

// expected-error @+1 {{'builtin.module' op needs a function @forward without arguments and with one result, the loss}}
module {
  func.func @forward(%loss: tensor<f32>) -> tensor<f32> {
    return %loss : tensor<f32>
  }
}

// -----

// expected-error @+1 {{'builtin.module' op needs a function @forward without arguments and with one result, the loss}}
module {
  func.func @forward() {
    return
  }
}

// -----

lm.variable @w parameter : tensor<4x8xf32> init zeros
lm.variable @s scalar : tensor<f32> init none
lm.variable @t input : tensor<4xi32> init none
func.func @forward() -> tensor<f32> {
  %w = lm.load @w : tensor<4x8xf32>
  %s = lm.load @s : tensor<f32>
  // expected-error @+1 {{'lm.scale' op is on the path from a parameter to the loss but has no VJP}}
  %x = lm.scale %w, %s : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %t = lm.load @t : tensor<4xi32>
  %loss = lm.linear_cross_entropy %x, %w, %t chunk 4 : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Inside a layer too.
lm.variable @w parameter : tensor<4x8xf32> init zeros
lm.variable @s scalar : tensor<f32> init none
lm.variable @t input : tensor<4xi32> init none
func.func private @layer(%w: tensor<4x8xf32>, %s: tensor<f32>) -> tensor<4x8xf32> {
  // expected-error @+1 {{'lm.scale' op is on the path from a parameter to the loss but has no VJP}}
  %x = lm.scale %w, %s : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  return %x : tensor<4x8xf32>
}
func.func @forward() -> tensor<f32> {
  %w = lm.load @w : tensor<4x8xf32>
  %s = lm.load @s : tensor<f32>
  %x = call @layer(%w, %s) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %t = lm.load @t : tensor<4xi32>
  %loss = lm.linear_cross_entropy %x, %w, %t chunk 4 : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

lm.variable @w parameter : tensor<4x8xf32> init zeros
lm.variable @head parameter : tensor<16x4xf32> init zeros
lm.variable @t input : tensor<4xi32> init none
func.func @forward() -> tensor<f32> {
  %w = lm.load @w : tensor<4x8xf32>
  // expected-error @+1 {{'lm.attention' op can be differentiated through its output only, not through lse}}
  %y, %lse = lm.attention %w, %w, %w : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  %head = lm.load @head : tensor<16x4xf32>
  %t = lm.load @t : tensor<4xi32>
  %loss = lm.linear_cross_entropy %lse, %head, %t chunk 4 : (tensor<4x4xf32>, tensor<16x4xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

lm.variable @w parameter : tensor<4x8xf32> init zeros
lm.variable @t input : tensor<4xi32> init none
func.func private @layer(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %y = lm.add %x, %x : tensor<4x8xf32>
  %z = lm.add %x, %y : tensor<4x8xf32>
  return %y, %z : tensor<4x8xf32>, tensor<4x8xf32>
}
func.func @forward() -> tensor<f32> {
  %w = lm.load @w : tensor<4x8xf32>
  // expected-error @+1 {{'func.call' op has a result that the loss does not depend on}}
  %y:2 = call @layer(%w) : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
  %t = lm.load @t : tensor<4xi32>
  %loss = lm.linear_cross_entropy %y#0, %w, %t chunk 4 : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

lm.variable @w parameter : tensor<4x8xf32> init zeros
lm.variable @t input : tensor<4xi32> init none
func.func private @inner(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %y = lm.add %x, %x : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
func.func private @outer(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @+1 {{'func.call' op cannot be differentiated inside a layer: layers do not nest}}
  %y = call @inner(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}
func.func @forward() -> tensor<f32> {
  %w = lm.load @w : tensor<4x8xf32>
  %y = call @outer(%w) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %t = lm.load @t : tensor<4xi32>
  %loss = lm.linear_cross_entropy %y, %w, %t chunk 4 : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

lm.variable @x input : tensor<4x8xf32> init none
lm.variable @w parameter : tensor<8x8xf32> init zeros
lm.variable @t input : tensor<4xi32> init none
func.func private @layer(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error @+1 {{'lm.load' op reads state inside a layer; pass the value as an argument}}
  %w = lm.load @w : tensor<8x8xf32>
  %h = lm.linear %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %h : tensor<4x8xf32>
}
func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<4x8xf32>
  %y = call @layer(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %t = lm.load @t : tensor<4xi32>
  %loss = lm.linear_cross_entropy %y, %x, %t chunk 4 : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

lm.variable @x input : tensor<4x8xf32> init none
lm.variable @w parameter : tensor<8x8xf32> init zeros
lm.variable @t input : tensor<4xi32> init none
// expected-error @+1 {{is a layer without ops}}
func.func private @layer(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}
func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<4x8xf32>
  %w = lm.load @w : tensor<8x8xf32>
  %y = call @layer(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %t = lm.load @t : tensor<4xi32>
  %loss = lm.linear_cross_entropy %y, %w, %t chunk 4 : (tensor<4x8xf32>, tensor<8x8xf32>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

lm.variable @w parameter : tensor<4x8xf32> init zeros
lm.variable @w.compute compute_copy : tensor<4x8xbf16> init copy_of(source = "w") {parameter = "w"}
lm.variable @t input : tensor<4xi32> init none
func.func @forward() -> tensor<f32> {
  // expected-error @+1 {{is a parameter whose gradient comes as 'tensor<4x8xbf16>', not in the accumulation dtype}}
  %w = lm.load @w.compute : tensor<4x8xbf16>
  %y = lm.add %w, %w : tensor<4x8xbf16>
  %t = lm.load @t : tensor<4xi32>
  %loss = lm.linear_cross_entropy %y, %w, %t chunk 4 : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}
