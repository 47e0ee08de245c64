// Every parser and verifier error of the kern dialect.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics

func.func @unknownHero(%x: tensor<8xf32>) {
  // expected-error @+1 {{unknown hero 'diagonal'}}
  %0 = kern.fusion diagonal (%a = %x : tensor<8xf32>) -> tensor<8xf32> {
    kern.yield %a : tensor<8xf32>
  }
  return
}

// -----

func.func @arguments(%x: tensor<8xf32>) {
  // expected-error @+1 {{'kern.fusion' op has block arguments that differ from its inputs}}
  %0 = "kern.fusion"(%x) <{hero = 0 : i32}> ({
  ^bb0(%a: tensor<4xf32>):
    kern.yield %a : tensor<4xf32>
  }) : (tensor<8xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @missingArgument(%x: tensor<8xf32>) {
  // expected-error @+1 {{'kern.fusion' op has block arguments that differ from its inputs}}
  %0 = "kern.fusion"(%x, %x) <{hero = 0 : i32}> ({
  ^bb0(%a: tensor<8xf32>):
    kern.yield %a : tensor<8xf32>
  }) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @resultType(%x: tensor<8xf32>) {
  // expected-error @+1 {{'kern.fusion' op must end in a kern.yield of its result types}}
  %0 = kern.fusion elementwise (%a = %x : tensor<8xf32>) -> tensor<8xbf16> {
    kern.yield %a : tensor<8xf32>
  }
  return
}

// -----

func.func @resultCount(%x: tensor<8xf32>) {
  // expected-error @+1 {{'kern.fusion' op must end in a kern.yield of its result types}}
  %0:2 = kern.fusion elementwise (%a = %x : tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    kern.yield %a : tensor<8xf32>
  }
  return
}

// -----

func.func @foreignOp(%x: tensor<8xf32>) {
  %0 = kern.fusion elementwise (%a = %x : tensor<8xf32>) -> tensor<8xf32> {
    // expected-error @+1 {{'arith.addf' op is not allowed in a kern.fusion; only linalg.generic, linalg.fill, tensor.empty, tensor.insert_slice and arith.constant are}}
    %s = arith.addf %a, %a : tensor<8xf32>
    kern.yield %s : tensor<8xf32>
  }
  return
}

// -----

// A region sees its inputs only.
func.func @fromOutside(%x: tensor<8xf32>) {
  // expected-note @+1 {{required by region isolation constraints}}
  %0 = kern.fusion elementwise () -> tensor<8xf32> {
    // expected-error @+1 {{'kern.yield' op using value defined outside the region}}
    kern.yield %x : tensor<8xf32>
  }
  return
}

// -----

func.func @strayYield(%x: tensor<8xf32>) {
  // expected-error @+1 {{'kern.yield' op expects parent op to be one of 'kern.fusion, kern.kernel'}}
  kern.yield %x : tensor<8xf32>
}

// -----

func.func @contraction(%a: tensor<4x8xf32>, %b: tensor<6x8xf32>) {
  // expected-error @+1 {{'kern.gemm' op multiplies [4, 8] by [6, 8] into 'tensor<4x8xf32>'}}
  %0 = kern.gemm %a, %b : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @rows(%a: tensor<4x8xf32>, %b: tensor<4x6xf32>) {
  // expected-error @+1 {{'kern.gemm' op multiplies [8, 4] by [4, 6] into 'tensor<4x6xf32>'}}
  %0 = kern.gemm %a, %b : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> {transpose_a}
  return
}

// -----

func.func @columns(%a: tensor<4x8xf32>, %b: tensor<6x8xf32>) {
  // expected-error @+1 {{'kern.gemm' op multiplies [4, 8] by [8, 6] into 'tensor<4x8xf32>'}}
  %0 = kern.gemm %a, %b : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x8xf32> {transpose_b}
  return
}

// -----

func.func @accumulator(%a: tensor<4x8xbf16>, %b: tensor<8x6xbf16>, %acc: tensor<4x6xbf16>) {
  // expected-error @+1 {{'kern.gemm' op has an accumulator of type 'tensor<4x6xbf16>'}}
  %0 = kern.gemm %a, %b acc %acc : (tensor<4x8xbf16>, tensor<8x6xbf16>, tensor<4x6xbf16>) -> tensor<4x6xf32>
  return
}

// -----

func.func @bias(%a: tensor<4x8xf32>, %b: tensor<8x6xf32>, %bias: tensor<4xf32>) {
  // expected-error @+1 {{'kern.gemm' op has a bias of type 'tensor<4xf32>'}}
  %0 = kern.gemm %a, %b bias %bias : (tensor<4x8xf32>, tensor<8x6xf32>, tensor<4xf32>) -> tensor<4x6xf32>
  return
}

// -----

lm.variable @r scalar : tensor<8xf32> {init = {kind = "none"}}
func.func @unknown() {
  %r = lm.load @r : tensor<8xf32>
  // expected-error @+1 {{'kern.launch' op refers to @nothing, which is no kern.kernel}}
  %s = kern.launch @nothing(%r) : (tensor<8xf32>) -> tensor<8xf32>
  lm.store %s, @r : tensor<8xf32>
  return
}
