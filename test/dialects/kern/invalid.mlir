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

func.func @gemmScales(%a: tensor<4x8xf8E4M3FN>, %b: tensor<8x6xf8E4M3FN>, %s: tensor<f32>) {
  // expected-error @+1 {{'kern.gemm' op multiplies 'tensor<4x8xf8E4M3FN>' by 'tensor<8x6xf8E4M3FN>'; factors of 8 bits have scales, and no others have}}
  %0 = kern.gemm %a, %b : (tensor<4x8xf8E4M3FN>, tensor<8x6xf8E4M3FN>) -> tensor<4x6xf32>
  return
}

// -----

func.func @gemmOneShort(%a: tensor<4x8xf8E4M3FN>, %b: tensor<8x6xbf16>, %s: tensor<f32>) {
  // expected-error @+1 {{'kern.gemm' op multiplies 'tensor<4x8xf8E4M3FN>' by 'tensor<8x6xbf16>'; factors of 8 bits have scales, and no others have}}
  %0 = kern.gemm %a, %b scales %s, %s : (tensor<4x8xf8E4M3FN>, tensor<8x6xbf16>, tensor<f32>, tensor<f32>) -> tensor<4x6xf32>
  return
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

func.func @residual(%a: tensor<4x8xbf16>, %b: tensor<8x6xbf16>, %r: tensor<4x6xf32>) {
  // expected-error @+1 {{'kern.gemm' op has a residual of type 'tensor<4x6xf32>'}}
  %0 = kern.gemm %a, %b residual %r : (tensor<4x8xbf16>, tensor<8x6xbf16>, tensor<4x6xf32>) -> tensor<4x6xbf16>
  return
}

// -----

func.func @residualAndAccumulator(%a: tensor<4x8xf32>, %b: tensor<8x6xf32>, %r: tensor<4x6xf32>) {
  // expected-error @+1 {{'kern.gemm' op has both a residual and an accumulator}}
  %0 = kern.gemm %a, %b acc %r residual %r : (tensor<4x8xf32>, tensor<8x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @bias(%a: tensor<4x8xf32>, %b: tensor<8x6xf32>, %bias: tensor<4xf32>) {
  // expected-error @+1 {{'kern.gemm' op has a bias of type 'tensor<4xf32>'}}
  %0 = kern.gemm %a, %b bias %bias : (tensor<4x8xf32>, tensor<8x6xf32>, tensor<4xf32>) -> tensor<4x6xf32>
  return
}

// -----

lm.variable @r scalar : tensor<8xf32> init none
func.func @unknown() {
  %r = lm.load @r : tensor<8xf32>
  // expected-error @+1 {{'kern.launch' op refers to @nothing, which is no kern.kernel}}
  %s = kern.launch @nothing(%r) : (tensor<8xf32>) -> tensor<8xf32>
  lm.store %s, @r : tensor<8xf32>
  return
}

// -----

func.func @attentionFeatures(%q: tensor<4x8xf32>, %k: tensor<4x6xf32>, %v: tensor<4x6xf32>) {
  // expected-error @+1 {{'kern.attention' op has features that are not a multiple of head_dim 4}}
  %0:2 = kern.attention %q, %k, %v : (tensor<4x8xf32>, tensor<4x6xf32>, tensor<4x6xf32>) -> (tensor<4x8xf32>, tensor<4x2xf32>) {head_dim = 4 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionHeads(%q: tensor<4x6xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention' op has 3 heads, not a multiple of 2 key-value heads}}
  %0:2 = kern.attention %q, %k, %v : (tensor<4x6xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x6xf32>, tensor<4x3xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionSequence(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention' op has 4 tokens, not a multiple of seq 3}}
  %0:2 = kern.attention %q, %k, %v : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 3 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionKeyValue(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xbf16>) {
  // expected-error @+1 {{'kern.attention' op needs k and v of one type}}
  %0:2 = kern.attention %q, %k, %v : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xbf16>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionType(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention' op must keep the type of q}}
  %0:2 = kern.attention %q, %k, %v : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xbf16>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionKeyRows(%q: tensor<4x8xf32>, %k: tensor<2x4xf32>, %v: tensor<2x4xf32>) {
  // expected-error @+1 {{'kern.attention' op has key rows 2, expected 4}}
  %0:2 = kern.attention %q, %k, %v : (tensor<4x8xf32>, tensor<2x4xf32>, tensor<2x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionLseRows(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention' op has lse rows 2, expected 4}}
  %0:2 = kern.attention %q, %k, %v : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<2x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionLseColumns(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention' op has lse columns 8, expected 4}}
  %0:2 = kern.attention %q, %k, %v : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionStarts(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'kern.attention' op has starts 3, expected 4}}
  %0:2 = kern.attention %q, %k, %v starts %s : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<3xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionKeyElements(%q: tensor<4x8xf32>, %k: tensor<4x4xbf16>, %v: tensor<4x4xbf16>) {
  // expected-error @+1 {{'kern.attention' op has queries of 'f32' but keys of 'bf16'}}
  %0:2 = kern.attention %q, %k, %v : (tensor<4x8xf32>, tensor<4x4xbf16>, tensor<4x4xbf16>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionLseElements(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention' op has lse of 'f64' for queries of 'f32'}}
  %0:2 = kern.attention %q, %k, %v : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf64>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionWindow(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention' op has window -1, expected at least 0}}
  %0:2 = kern.attention %q, %k, %v : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = -1 : i64}
  return
}

// -----

func.func @attentionGradFeatures(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x6xf32>, %v: tensor<4x6xf32>, %o: tensor<4x8xf32>, %l: tensor<4x2xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op has features that are not a multiple of head_dim 4}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x8xf32>, tensor<4x2xf32>) -> (tensor<4x8xf32>, tensor<4x6xf32>, tensor<4x6xf32>) {head_dim = 4 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionGradHeads(%g: tensor<4x6xf32>, %q: tensor<4x6xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x6xf32>, %l: tensor<4x3xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op has 3 heads, not a multiple of 2 key-value heads}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x6xf32>, tensor<4x3xf32>) -> (tensor<4x6xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionGradSequence(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op has 4 tokens, not a multiple of seq 3}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 3 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionGradKeyValue(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xbf16>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op needs k and v of one type}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xbf16>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionGradType(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xbf16>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op must keep the type of q}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xbf16>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionGradKeyRows(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<2x4xf32>, %v: tensor<2x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op has key rows 2, expected 4}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionGradLseRows(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<2x4xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op has lse rows 2, expected 4}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<2x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionGradLseColumns(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x8xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op has lse columns 8, expected 4}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionGradStarts(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'kern.attention_grad' op has starts 3, expected 4}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l starts %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<3xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionGradTables(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>, %c: tensor<4x1xf32>, %s: tensor<2x1xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op has rotation tables of 'tensor<4x1xf32>', not 'tensor<2x1xf32>'}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l rope %c, %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x1xf32>, tensor<2x1xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionGradKeyElements(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xbf16>, %v: tensor<4x4xbf16>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op has queries of 'f32' but keys of 'bf16'}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xbf16>, tensor<4x4xbf16>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xbf16>, tensor<4x4xbf16>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionGradLseElements(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf64>) {
  // expected-error @+1 {{'kern.attention_grad' op has lse of 'f64' for queries of 'f32'}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf64>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionGradWindow(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op has window -1, expected at least 0}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = -1 : i64}
  return
}

// -----

func.func @attentionGradDout(%g: tensor<4x8xbf16>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op needs dout of the type of out}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xbf16>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionGradDq(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op must give dq, dk and dv the types of q, k and v}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xbf16>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionGradDk(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op must give dq, dk and dv the types of q, k and v}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  return
}

// -----

func.func @attentionGradDv(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'kern.attention_grad' op must give dq, dk and dv the types of q, k and v}}
  %0:3 = kern.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x8xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
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
  // expected-error @+1 {{result #0 must be 2D tensor of 32-bit float or 64-bit float values, but got 'tensor<16x8xbf16>'}}
  %0 = kern.scatter_add %ids, %x : (tensor<4xi32>, tensor<4x8xbf16>) -> tensor<16x8xbf16>
  return
}

// -----

func.func @scatterAccumulator(%ids: tensor<4xi32>, %x: tensor<4x8xf32>, %acc: tensor<15x8xf32>) {
  // expected-error @+1 {{'kern.scatter_add' op has an accumulator of type 'tensor<15x8xf32>'}}
  %0 = kern.scatter_add %ids, %x acc %acc : (tensor<4xi32>, tensor<4x8xf32>, tensor<15x8xf32>) -> tensor<16x8xf32>
  return
}

// -----

// expected-error @+1 {{'kern.kernel' op must end in a kern.yield}}
"kern.kernel"() <{sym_name = "noYield", hero = 0 : i32}> ({
^bb0(%a: tensor<8xf32>):
  %0 = arith.constant dense<0.0> : tensor<8xf32>
}) : () -> ()

// -----

// expected-error @+1 {{'kern.kernel' op has an argument of type 'f32', which is no tensor}}
kern.kernel @scalar elementwise {
^bb0(%a: tensor<4x8xf32>, %s: f32):
  kern.yield %a : tensor<4x8xf32>
}

// -----

// expected-error @+1 {{'kern.kernel' op has arg_rows without arg_pitches, or the reverse}}
kern.kernel @rowsAlone elementwise attributes {arg_rows = array<i64: 4, 4>} {
^bb0(%a: tensor<4x8xf32>):
  kern.yield %a : tensor<4x8xf32>
}

// -----

// expected-error @+1 {{'kern.kernel' op has 2 arg_rows and 1 arg_pitches for 2 inputs and results}}
kern.kernel @pitchOfTheResult elementwise attributes {arg_rows = array<i64: 4, 4>, arg_pitches = array<i64: 0>} {
^bb0(%a: tensor<4x8xf32>):
  kern.yield %a : tensor<4x8xf32>
}

// -----

// expected-error @+1 {{'kern.kernel' op has arg_rows below 1 or arg_pitches below 0}}
kern.kernel @negativePitch elementwise attributes {arg_rows = array<i64: 4, 4>, arg_pitches = array<i64: 16, -16>} {
^bb0(%a: tensor<4x8xf32>):
  kern.yield %a : tensor<4x8xf32>
}

// -----

// expected-error @+1 {{'kern.kernel' op has arg_rows below 1 or arg_pitches below 0}}
kern.kernel @noRows elementwise attributes {arg_rows = array<i64: 0, 4>, arg_pitches = array<i64: 16, 16>} {
^bb0(%a: tensor<4x8xf32>):
  kern.yield %a : tensor<4x8xf32>
}

// -----

kern.kernel @foreignOpInAKernel elementwise {
^bb0(%a: tensor<8xf32>):
  // expected-error @+1 {{'arith.addf' op is not allowed in a kern.kernel; only linalg.generic, linalg.fill, tensor.empty, tensor.insert_slice and arith.constant are}}
  %s = arith.addf %a, %a : tensor<8xf32>
  kern.yield %s : tensor<8xf32>
}

// -----

func.func @gemmStack(%a: tensor<4x8xf32>, %b: tensor<24x6xf32>) {
  // expected-error @+1 {{'kern.gemm' op has no stack of 3 matrices in 'tensor<4x8xf32>'}}
  %0 = kern.gemm %a, %b : (tensor<4x8xf32>, tensor<24x6xf32>) -> tensor<3x6xf32> {batch = 3 : i64}
  return
}

// -----

func.func @gemmStackOfOthers(%a: tensor<4x8xf32>, %b: tensor<8x6xf32>) {
  // expected-error @+1 {{'kern.gemm' op multiplies [2, 8] by [4, 6] into 'tensor<4x6xf32>'}}
  %0 = kern.gemm %a, %b : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32> {batch = 2 : i64}
  return
}

// -----

func.func @gemmStackBias(%a: tensor<4x8xf32>, %b: tensor<16x6xf32>, %bias: tensor<6xf32>) {
  // expected-error @+1 {{'kern.gemm' op adds a bias or a residual to 2 products}}
  %0 = kern.gemm %a, %b bias %bias : (tensor<4x8xf32>, tensor<16x6xf32>, tensor<6xf32>) -> tensor<4x6xf32> {batch = 2 : i64}
  return
}
