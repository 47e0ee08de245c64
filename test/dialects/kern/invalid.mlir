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

// -----

func.func @sequences(%q: tensor<5x8xf32>, %k: tensor<5x4xf32>) {
  // expected-error @+1 {{'kern.attention' op does not have whole sequences of 2 tokens in 'tensor<5x8xf32>'}}
  %0:2 = kern.attention %q, %k, %k : (tensor<5x8xf32>, tensor<5x4xf32>, tensor<5x4xf32>) -> (tensor<5x8xf32>, tensor<5x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @headDim(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention' op has head_dim 0, seq 2 and window 0}}
  %0:2 = kern.attention %q, %k, %k : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 0 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @heads(%q: tensor<4x8xf32>, %k: tensor<4x6xf32>) {
  // expected-error @+1 {{'kern.attention' op does not have heads of 2 in 'tensor<4x8xf32>' over 'tensor<4x6xf32>'}}
  %0:2 = kern.attention %q, %k, %k : (tensor<4x8xf32>, tensor<4x6xf32>, tensor<4x6xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @values(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x8xf32>) {
  // expected-error @+1 {{'kern.attention' op has keys 'tensor<4x4xf32>' and values 'tensor<4x8xf32>' for 'tensor<4x8xf32>'}}
  %0:2 = kern.attention %q, %k, %v : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionResult(%q: tensor<4x8xbf16>, %k: tensor<4x4xbf16>) {
  // expected-error @+1 {{'kern.attention' op has a result of type 'tensor<4x8xf32>' for 'tensor<4x8xbf16>'}}
  %0:2 = kern.attention %q, %k, %k : (tensor<4x8xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @logSumExp(%q: tensor<4x8xbf16>, %k: tensor<4x4xbf16>) {
  // expected-error @+1 {{'kern.attention' op has log-sum-exps of type 'tensor<4x4xbf16>', not 'tensor<4x4xf32>'}}
  %0:2 = kern.attention %q, %k, %k : (tensor<4x8xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>) -> (tensor<4x8xbf16>, tensor<4x4xbf16>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @gradientOfQueries(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %lse: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op has an output or a gradient of type 'tensor<4x4xf32>' for 'tensor<4x8xf32>'}}
  %0:3 = kern.attention_grad %k, %q, %k, %k, %q, %lse : (tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @gradientOfKeys(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %lse: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op has a gradient of type 'tensor<4x8xf32>' for 'tensor<4x4xf32>'}}
  %0:3 = kern.attention_grad %q, %q, %k, %k, %q, %lse : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @window(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %lse: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op has head_dim 2, seq 2 and window -1}}
  %0:3 = kern.attention_grad %q, %q, %k, %k, %q, %lse : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = -1 : i64}
  return
}

// -----

func.func @scatterRows(%ids: tensor<4xi32>, %x: tensor<5x8xf32>) {
  // expected-error @+1 {{'kern.scatter_add' op adds rows of 'tensor<5x8xf32>' by 'tensor<4xi32>' into 'tensor<16x8xf32>'}}
  %0 = kern.scatter_add %ids, %x : (tensor<4xi32>, tensor<5x8xf32>) -> tensor<16x8xf32>
  return
}

// -----

func.func @scatterColumns(%ids: tensor<4xi32>, %x: tensor<4x8xf32>) {
  // expected-error @+1 {{'kern.scatter_add' op adds rows of 'tensor<4x8xf32>' by 'tensor<4xi32>' into 'tensor<16x9xf32>'}}
  %0 = kern.scatter_add %ids, %x : (tensor<4xi32>, tensor<4x8xf32>) -> tensor<16x9xf32>
  return
}

// -----

func.func @scatterSums(%ids: tensor<4xi32>, %x: tensor<4x8xbf16>) {
  // expected-error @+1 {{'kern.scatter_add' op sums 'bf16' in 'bf16'}}
  %0 = kern.scatter_add %ids, %x : (tensor<4xi32>, tensor<4x8xbf16>) -> tensor<16x8xbf16>
  return
}

// -----

func.func @scatterAccumulator(%ids: tensor<4xi32>, %x: tensor<4x8xf32>, %acc: tensor<15x8xf32>) {
  // expected-error @+1 {{'kern.scatter_add' op has an accumulator of type 'tensor<15x8xf32>'}}
  %0 = kern.scatter_add %ids, %x acc %acc : (tensor<4xi32>, tensor<4x8xf32>, tensor<15x8xf32>) -> tensor<16x8xf32>
  return
}
