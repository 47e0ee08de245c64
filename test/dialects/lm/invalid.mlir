// Every verifier error of the lm dialect.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics

func.func @loadNothing() {
  // expected-error @+1 {{'lm.load' op refers to @w, which is no lm.variable}}
  %0 = lm.load @w : tensor<4xf32>
  return
}

// -----

lm.variable @w parameter : tensor<8xf32> init ones
func.func @loadOtherType() {
  // expected-error @+1 {{'lm.load' op has type 'tensor<4xf32>' but @w is a 'tensor<8xf32>'}}
  %0 = lm.load @w : tensor<4xf32>
  return
}

// -----

// A function is no variable.
func.func @storeToFunction(%x: tensor<4xf32>) {
  // expected-error @+1 {{'lm.store' op refers to @storeToFunction, which is no lm.variable}}
  lm.store %x, @storeToFunction : tensor<4xf32>
  return
}

// -----

lm.variable @w parameter : tensor<4xbf16> init ones
func.func @storeOtherType(%x: tensor<4xf32>) {
  // expected-error @+1 {{'lm.store' op has type 'tensor<4xf32>' but @w is a 'tensor<4xbf16>'}}
  lm.store %x, @w : tensor<4xf32>
  return
}

// -----

func.func @accumulateNothing(%x: tensor<4xf32>) {
  // expected-error @+1 {{'lm.accumulate' op refers to @w.grad, which is no lm.variable}}
  lm.accumulate %x, @w.grad : tensor<4xf32>
  return
}

// -----

lm.variable @w.grad gradient : tensor<8xf32> init zeros
func.func @accumulateOtherType(%x: tensor<4xf32>) {
  // expected-error @+1 {{'lm.accumulate' op has type 'tensor<4xf32>' but @w.grad is a 'tensor<8xf32>'}}
  lm.accumulate %x, @w.grad : tensor<4xf32>
  return
}

// -----

func.func @embeddingRows(%ids: tensor<4xi32>, %table: tensor<16x8xf32>) {
  // expected-error @+1 {{'lm.embedding' op has result rows 5, expected 4}}
  %0 = lm.embedding %ids, %table : (tensor<4xi32>, tensor<16x8xf32>) -> tensor<5x8xf32>
  return
}

// -----

func.func @embeddingColumns(%ids: tensor<4xi32>, %table: tensor<16x8xf32>) {
  // expected-error @+1 {{'lm.embedding' op has result columns 16, expected 8}}
  %0 = lm.embedding %ids, %table : (tensor<4xi32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  return
}

// -----

func.func @embeddingGradRows(%ids: tensor<4xi32>, %dy: tensor<5x8xf32>) {
  // expected-error @+1 {{'lm.embedding_grad' op has dy rows 5, expected 4}}
  %0 = lm.embedding_grad %ids, %dy : (tensor<4xi32>, tensor<5x8xf32>) -> tensor<16x8xf32>
  return
}

// -----

func.func @embeddingGradAccumulator(%ids: tensor<4xi32>, %dy: tensor<4x8xf32>, %acc: tensor<15x8xf32>) {
  // expected-error @+1 {{'lm.embedding_grad' op has an accumulator of type 'tensor<15x8xf32>'}}
  %0 = lm.embedding_grad %ids, %dy acc %acc : (tensor<4xi32>, tensor<4x8xf32>, tensor<15x8xf32>) -> tensor<16x8xf32>
  return
}

// -----

func.func @embeddingGradColumns(%ids: tensor<4xi32>, %dy: tensor<4x8xf32>) {
  // expected-error @+1 {{'lm.embedding_grad' op has result columns 7, expected 8}}
  %0 = lm.embedding_grad %ids, %dy : (tensor<4xi32>, tensor<4x8xf32>) -> tensor<16x7xf32>
  return
}

// -----

func.func @matmulContraction(%a: tensor<4x8xf32>, %b: tensor<6x8xf32>) {
  // expected-error @+1 {{'lm.matmul' op has contraction size of b 6, expected 8}}
  %0 = lm.matmul %a, %b : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @matmulRows(%a: tensor<4x8xf32>, %b: tensor<4x6xf32>) {
  // expected-error @+1 {{'lm.matmul' op has result rows 4, expected 8}}
  %0 = lm.matmul %a, %b : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> {transpose_a}
  return
}

// -----

func.func @matmulAccumulator(%a: tensor<4x8xbf16>, %b: tensor<8x6xbf16>, %acc: tensor<4x6xbf16>) {
  // expected-error @+1 {{'lm.matmul' op has an accumulator of type 'tensor<4x6xbf16>'}}
  %0 = lm.matmul %a, %b acc %acc : (tensor<4x8xbf16>, tensor<8x6xbf16>, tensor<4x6xbf16>) -> tensor<4x6xf32>
  return
}

// -----

func.func @matmulColumns(%a: tensor<4x8xf32>, %b: tensor<6x8xf32>) {
  // expected-error @+1 {{'lm.matmul' op has result columns 8, expected 6}}
  %0 = lm.matmul %a, %b : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x8xf32> {transpose_b}
  return
}

// -----

func.func @linearContraction(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>) {
  // expected-error @+1 {{'lm.linear' op has weight columns 6, expected 8}}
  %0 = lm.linear %x, %w : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @linearResidual(%x: tensor<4x8xbf16>, %w: tensor<6x8xbf16>, %r: tensor<4x6xf32>) {
  // expected-error @+1 {{'lm.linear' op has a residual of type 'tensor<4x6xf32>'}}
  %0 = lm.linear %x, %w residual %r : (tensor<4x8xbf16>, tensor<6x8xbf16>, tensor<4x6xf32>) -> tensor<4x6xbf16>
  return
}

// -----

func.func @linearRows(%x: tensor<4x8xf32>, %w: tensor<6x8xf32>) {
  // expected-error @+1 {{'lm.linear' op has result rows 3, expected 4}}
  %0 = lm.linear %x, %w : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<3x6xf32>
  return
}

// -----

func.func @transposedLinear(%x: tensor<4x8xf32>, %w: tensor<6x8xf32>) {
  // expected-error @+1 {{'lm.linear' op has weight rows 6, expected 8}}
  %0 = lm.linear %x, %w : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x6xf32> {transposed}
  return
}

// -----

func.func @transposedLinearBias(%x: tensor<4x8xf32>, %w: tensor<8x6xf32>, %b: tensor<8xf32>) {
  // expected-error @+1 {{'lm.linear' op has bias size 8, expected 6}}
  %0 = lm.linear %x, %w bias %b : (tensor<4x8xf32>, tensor<8x6xf32>, tensor<8xf32>) -> tensor<4x6xf32> {transposed}
  return
}

// -----

func.func @layerNormType(%x: tensor<4x8xbf16>, %w: tensor<8xf32>) {
  // expected-error @+1 {{'lm.layer_norm' op must keep the type of its input}}
  %0 = lm.layer_norm %x, %w, %w eps 1.0e-5 : (tensor<4x8xbf16>, tensor<8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @layerNormWeight(%x: tensor<4x8xf32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{'lm.layer_norm' op has weight size 4, expected 8}}
  %0 = lm.layer_norm %x, %w, %w eps 1.0e-5 : (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @layerNormBias(%x: tensor<4x8xf32>, %w: tensor<8xf32>, %b: tensor<8xbf16>) {
  // expected-error @+1 {{'lm.layer_norm' op needs weight and bias of one type}}
  %0 = lm.layer_norm %x, %w, %b eps 1.0e-5 : (tensor<4x8xf32>, tensor<8xf32>, tensor<8xbf16>) -> tensor<4x8xf32>
  return
}

// -----

func.func @layerNormGradTypes(%dy: tensor<4x8xf32>, %x: tensor<4x8xbf16>, %w: tensor<8xf32>) {
  // expected-error @+1 {{'lm.layer_norm_grad' op needs dy, x and dx of one type}}
  %0:3 = lm.layer_norm_grad %dy, %x, %w eps 1.0e-5 : (tensor<4x8xf32>, tensor<4x8xbf16>, tensor<8xf32>) -> (tensor<4x8xbf16>, tensor<8xf32>, tensor<8xf32>)
  return
}

// -----

func.func @layerNormGradWeight(%x: tensor<4x8xf32>, %w: tensor<16xf32>) {
  // expected-error @+1 {{'lm.layer_norm_grad' op has weight size 16, expected 8}}
  %0:3 = lm.layer_norm_grad %x, %x, %w eps 1.0e-5 : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<16xf32>) -> (tensor<4x8xf32>, tensor<16xf32>, tensor<16xf32>)
  return
}

// -----

func.func @layerNormGradBias(%x: tensor<4x8xf32>, %w: tensor<8xf32>) {
  // expected-error @+1 {{'lm.layer_norm_grad' op needs dweight and dbias of one type}}
  %0:3 = lm.layer_norm_grad %x, %x, %w eps 1.0e-5 : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @layerNormGradSize(%x: tensor<4x8xf32>, %w: tensor<8xf32>) {
  // expected-error @+1 {{'lm.layer_norm_grad' op has dweight size 4, expected 8}}
  %0:3 = lm.layer_norm_grad %x, %x, %w eps 1.0e-5 : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @linearBias(%x: tensor<4x8xf32>, %w: tensor<6x8xf32>, %b: tensor<8xf32>) {
  // expected-error @+1 {{'lm.linear' op has bias size 8, expected 6}}
  %0 = lm.linear %x, %w bias %b : (tensor<4x8xf32>, tensor<6x8xf32>, tensor<8xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @linearColumns(%x: tensor<4x8xf32>, %w: tensor<6x8xf32>) {
  // expected-error @+1 {{'lm.linear' op has result columns 8, expected 6}}
  %0 = lm.linear %x, %w : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @sumRows(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'lm.sum_rows' op has result size 4, expected 8}}
  %0 = lm.sum_rows %x : (tensor<4x8xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @rmsNormType(%x: tensor<4x8xbf16>, %w: tensor<8xf32>) {
  // expected-error @+1 {{'lm.rms_norm' op must keep the type of its input}}
  %0 = lm.rms_norm %x, %w eps 1.0e-5 : (tensor<4x8xbf16>, tensor<8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @rmsNormWeight(%x: tensor<4x8xf32>, %w: tensor<3xf32>) {
  // expected-error @+1 {{'lm.rms_norm' op has 8 features, not a multiple of the weight size 3}}
  %0 = lm.rms_norm %x, %w eps 1.0e-5 : (tensor<4x8xf32>, tensor<3xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @rmsNormGradTypes(%dy: tensor<4x8xf32>, %x: tensor<4x8xbf16>, %w: tensor<8xf32>) {
  // expected-error @+1 {{'lm.rms_norm_grad' op needs dy, x and dx of one type}}
  %0:2 = lm.rms_norm_grad %dy, %x, %w eps 1.0e-5 : (tensor<4x8xf32>, tensor<4x8xbf16>, tensor<8xf32>) -> (tensor<4x8xbf16>, tensor<8xf32>)
  return
}

// -----

func.func @rmsNormGradWeight(%x: tensor<4x8xf32>, %w: tensor<16xf32>) {
  // expected-error @+1 {{'lm.rms_norm_grad' op has 8 features, not a multiple of the weight size 16}}
  %0:2 = lm.rms_norm_grad %x, %x, %w eps 1.0e-5 : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<16xf32>) -> (tensor<4x8xf32>, tensor<16xf32>)
  return
}

// -----

func.func @rmsNormGradResult(%x: tensor<4x8xf32>, %w: tensor<8xf32>) {
  // expected-error @+1 {{'lm.rms_norm_grad' op has dweight size 4, expected 8}}
  %0:2 = lm.rms_norm_grad %x, %x, %w eps 1.0e-5 : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}

// -----

func.func @ropeType(%x: tensor<4x8xbf16>, %t: tensor<2x2xf32>) {
  // expected-error @+1 {{'lm.rope' op must keep the type of its input}}
  %0 = lm.rope %x, %t, %t head_dim 4 : (tensor<4x8xbf16>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @ropeOddHeadDim(%x: tensor<4x9xf32>, %t: tensor<2x1xf32>) {
  // expected-error @+1 {{'lm.rope' op needs an even head_dim, has 3}}
  %0 = lm.rope %x, %t, %t head_dim 3 : (tensor<4x9xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x9xf32>
  return
}

// -----

func.func @ropeZeroHeadDim(%x: tensor<4x8xf32>, %t: tensor<2x1xf32>) {
  // expected-error @+1 {{'lm.rope' op needs an even head_dim, has 0}}
  %0 = lm.rope %x, %t, %t head_dim 0 : (tensor<4x8xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @ropeFeatures(%x: tensor<4x10xf32>, %t: tensor<2x2xf32>) {
  // expected-error @+1 {{'lm.rope' op has 10 features, not a multiple of head_dim 4}}
  %0 = lm.rope %x, %t, %t head_dim 4 : (tensor<4x10xf32>, tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<4x10xf32>
  return
}

// -----

func.func @ropeTables(%x: tensor<4x8xf32>, %cos: tensor<2x2xf32>, %sin: tensor<4x2xf32>) {
  // expected-error @+1 {{'lm.rope' op needs cos and sin of one type}}
  %0 = lm.rope %x, %cos, %sin head_dim 4 : (tensor<4x8xf32>, tensor<2x2xf32>, tensor<4x2xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @ropePositions(%x: tensor<4x8xf32>, %t: tensor<3x2xf32>) {
  // expected-error @+1 {{'lm.rope' op has 4 tokens, not a multiple of the table's 3 positions}}
  %0 = lm.rope %x, %t, %t head_dim 4 : (tensor<4x8xf32>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @ropeTableColumns(%x: tensor<4x8xf32>, %t: tensor<2x4xf32>) {
  // expected-error @+1 {{'lm.rope' op has table columns 4, expected 2}}
  %0 = lm.rope %x, %t, %t head_dim 4 : (tensor<4x8xf32>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @attentionFeatures(%q: tensor<4x8xf32>, %k: tensor<4x6xf32>) {
  // expected-error @+1 {{'lm.attention' op has features that are not a multiple of head_dim 4}}
  %0:2 = lm.attention %q, %k, %k : (tensor<4x8xf32>, tensor<4x6xf32>, tensor<4x6xf32>) -> (tensor<4x8xf32>, tensor<4x2xf32>) {head_dim = 4 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionLargest(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>) {
  // expected-error @+1 {{'lm.attention' op has the largest values 'tensor<4x4xf32>', not 'tensor<4x2xf32>'}}
  %0:3 = lm.attention %q, %k, %k : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x2xf32>, tensor<4x4xf32>) {head_dim = 4 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradLargest(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %l: tensor<4x2xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op has the largest values 'tensor<4x2xf32>', not 'tensor<4x4xf32>'}}
  %0:4 = lm.attention_grad %q, %q, %k, %k, %q, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x2xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x2xf32>) {head_dim = 4 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionHeads(%q: tensor<4x6xf32>, %k: tensor<4x4xf32>) {
  // expected-error @+1 {{'lm.attention' op has 3 heads, not a multiple of 2 key-value heads}}
  %0:2 = lm.attention %q, %k, %k : (tensor<4x6xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x6xf32>, tensor<4x3xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionSequence(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{'lm.attention' op has 4 tokens, not a multiple of seq 3}}
  %0:2 = lm.attention %q, %q, %q : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 3 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionKeyValue(%q: tensor<4x8xf32>, %v: tensor<4x8xbf16>) {
  // expected-error @+1 {{'lm.attention' op needs k and v of one type}}
  %0:2 = lm.attention %q, %q, %v : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xbf16>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionType(%q: tensor<4x8xbf16>) {
  // expected-error @+1 {{'lm.attention' op must keep the type of q}}
  %0:2 = lm.attention %q, %q, %q : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4x8xbf16>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionKeyRows(%q: tensor<4x8xf32>, %k: tensor<2x8xf32>) {
  // expected-error @+1 {{'lm.attention' op has key rows 2, expected 4}}
  %0:2 = lm.attention %q, %k, %k : (tensor<4x8xf32>, tensor<2x8xf32>, tensor<2x8xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionLseRows(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{'lm.attention' op has lse rows 2, expected 4}}
  %0:2 = lm.attention %q, %q, %q : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<2x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionLseColumns(%q: tensor<4x8xf32>) {
  // expected-error @+1 {{'lm.attention' op has lse columns 8, expected 4}}
  %0:2 = lm.attention %q, %q, %q : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @lossChunk(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %t: tensor<4xi32>) {
  // expected-error @+1 {{'lm.linear_cross_entropy' op needs a positive chunk}}
  %0 = lm.linear_cross_entropy %x, %w, %t chunk 0 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>) -> tensor<f32>
  return
}

// -----

func.func @lossWeight(%x: tensor<4x8xf32>, %w: tensor<16x4xf32>, %t: tensor<4xi32>) {
  // expected-error @+1 {{'lm.linear_cross_entropy' op has weight columns 4, expected 8}}
  %0 = lm.linear_cross_entropy %x, %w, %t chunk 2 : (tensor<4x8xf32>, tensor<16x4xf32>, tensor<4xi32>) -> tensor<f32>
  return
}

// -----

func.func @lossZ(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %t: tensor<4xi32>) {
  // expected-error @+1 {{'lm.linear_cross_entropy' op needs a positive z_loss}}
  %0 = lm.linear_cross_entropy %x, %w, %t chunk 2 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>) -> tensor<f32> {z_loss = 0.0 : f64}
  return
}

// -----

func.func @lossTargets(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %t: tensor<3xi32>) {
  // expected-error @+1 {{'lm.linear_cross_entropy' op has targets 3, expected 4}}
  %0 = lm.linear_cross_entropy %x, %w, %t chunk 2 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<3xi32>) -> tensor<f32>
  return
}

// -----

func.func @a(%q: tensor<4x8xf32>, %k: tensor<4x0xf32>) {
  // expected-error @+1 {{'lm.attention' op has 2 heads, not a multiple of 0 key-value heads}}
  %0:2 = lm.attention %q, %k, %k : (tensor<4x8xf32>, tensor<4x0xf32>, tensor<4x0xf32>) -> (tensor<4x8xf32>, tensor<4x2xf32>) {head_dim = 4 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @b(%x: tensor<4x8xf32>, %t: tensor<0x2xf32>) {
  // expected-error @+1 {{'lm.rope' op has 4 tokens, not a multiple of the table's 0 positions}}
  %0 = lm.rope %x, %t, %t head_dim 4 : (tensor<4x8xf32>, tensor<0x2xf32>, tensor<0x2xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @splitColumns(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'lm.split' op has columns in all parts 7, expected 8}}
  %0:2 = lm.split %x : (tensor<4x8xf32>) -> (tensor<4x3xf32>, tensor<4x4xf32>)
  return
}

// -----

func.func @joinRows(%x: tensor<4x8xf32>, %y: tensor<3x8xf32>) {
  // expected-error @+1 {{'lm.join' op has part rows 3, expected 4}}
  %0 = lm.join %x, %y : (tensor<4x8xf32>, tensor<3x8xf32>) -> tensor<4x16xf32>
  return
}

// -----

func.func @joinTypes(%x: tensor<4x8xf32>, %y: tensor<4x8xbf16>) {
  // expected-error @+1 {{'lm.join' op has a part of type 'tensor<4x8xbf16>' in a 'tensor<4x16xf32>'}}
  %0 = lm.join %x, %y : (tensor<4x8xf32>, tensor<4x8xbf16>) -> tensor<4x16xf32>
  return
}

// -----

func.func @codedOddSize(%p: tensor<10x30xf32>, %g: tensor<10x30xf32>, %c: tensor<10x30xi8>, %x: tensor<2xf32>, %v: tensor<10x30xi8>, %y: tensor<2xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.adamw8bit' op needs f32 parameters in whole blocks of 256 elements, has a 'tensor<10x30xf32>'}}
  %0:7 = lm.adamw8bit %p, %g, %c scale %x, %v scale %y norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<10x30xf32>, tensor<10x30xf32>, tensor<10x30xi8>, tensor<2xf32>, tensor<10x30xi8>, tensor<2xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<10x30xf32>, tensor<10x30xi8>, tensor<2xf32>, tensor<10x30xi8>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @codedF64(%p: tensor<8x64xf64>, %g: tensor<8x64xf64>, %c: tensor<8x64xi8>, %x: tensor<2xf32>, %v: tensor<8x64xi8>, %y: tensor<2xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.adamw8bit' op needs f32 parameters in whole blocks of 256 elements, has a 'tensor<8x64xf64>'}}
  %0:7 = lm.adamw8bit %p, %g, %c scale %x, %v scale %y norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<8x64xf64>, tensor<8x64xf64>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8x64xf64>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @codedScales(%p: tensor<8x64xf32>, %g: tensor<8x64xf32>, %c: tensor<8x64xi8>, %x: tensor<4xf32>, %v: tensor<8x64xi8>, %y: tensor<4xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.adamw8bit' op has scales in a 'tensor<4xf32>' where 2 blocks need one f32 each}}
  %0:7 = lm.adamw8bit %p, %g, %c scale %x, %v scale %y norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xi8>, tensor<4xf32>, tensor<8x64xi8>, tensor<4xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8x64xf32>, tensor<8x64xi8>, tensor<4xf32>, tensor<8x64xi8>, tensor<4xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @codedMoment(%p: tensor<8x64xf32>, %g: tensor<8x64xf32>, %c: tensor<8x64xi8>, %x: tensor<2xf32>, %v: tensor<64x8xi8>, %y: tensor<2xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.adamw8bit' op has moments in a 'tensor<64x8xi8>', expected 'tensor<8x64xi8>'}}
  %0:7 = lm.adamw8bit %p, %g, %c scale %x, %v scale %y norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<64x8xi8>, tensor<2xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8x64xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @codedOtherScales(%p: tensor<8x64xf32>, %g: tensor<8x64xf32>, %c: tensor<8x64xi8>, %x: tensor<2xf32>, %v: tensor<8x64xi8>, %y: tensor<1x2xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.adamw8bit' op has scales of types 'tensor<2xf32>' and 'tensor<1x2xf32>'}}
  %0:7 = lm.adamw8bit %p, %g, %c scale %x, %v scale %y norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<1x2xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8x64xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @codedGradient(%p: tensor<8x64xf32>, %g: tensor<8x64xbf16>, %c: tensor<8x64xi8>, %x: tensor<2xf32>, %v: tensor<8x64xi8>, %y: tensor<2xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.adamw8bit' op needs parameter and gradient of one type}}
  %0:7 = lm.adamw8bit %p, %g, %c scale %x, %v scale %y norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<8x64xf32>, tensor<8x64xbf16>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8x64xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @codedSums(%p: tensor<8x64xf32>, %g: tensor<8x64xf32>, %c: tensor<8x64xi8>, %x: tensor<2xf32>, %v: tensor<8x64xi8>, %y: tensor<2xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.adamw8bit' op has sums of squares 8, expected 2}}
  %0:7 = lm.adamw8bit %p, %g, %c scale %x, %v scale %y norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8x64xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<8xf32>, tensor<8xf32>)
  return
}

// -----

// expected-error @+1 {{'lm.variable' op has parts of 3 rows in all, but is a 'tensor<4x8xf32>'}}
lm.variable @w parameter : tensor<4x8xf32> init none {parts = [#lm.part<"a", rows = 3, init = zeros>]}

// -----

// expected-error @+1 {{'lm.variable' op attribute 'parts' failed to satisfy constraint: parts of a parameter}}
lm.variable @w parameter : tensor<4x8xf32> init none {parts = [{name = "a", rows = 4 : i64}]}

// -----

// expected-error @+1 {{expected ','}}
lm.variable @w parameter : tensor<4x8xf32> init none {parts = [#lm.part<"a", rows = 4>]}

// -----

// expected-error @+1 {{'lm.variable' op has a storage without an offset in it, or the reverse}}
lm.variable @w parameter : tensor<4x8xf32> init none {storage = @s}

// -----

// expected-error @+1 {{part "a" has -2 rows}}
lm.variable @w parameter : tensor<4x8xf32> init none {parts = [#lm.part<"a", rows = -2, init = zeros>, #lm.part<"b", rows = 6, init = zeros>]}

// -----

// expected-error @+2 {{failed to parse InitAttr parameter 'kind'}}
// expected-error @+1 {{expected one of [none, zeros, ones, normal, rope_cos, rope_sin, constant, copy_of] for how initial values are made, got: uniform}}
lm.variable @w parameter : tensor<4x8xf32> init uniform {weight_decay}

// -----

// expected-error @+1 {{initial values of the kind normal need a stddev}}
lm.variable @w parameter : tensor<4x8xf32> init normal

// -----

// expected-error @+1 {{initial values of the kind zeros take no source}}
lm.variable @w parameter : tensor<4x8xf32> init zeros(source = "v")

// -----

// expected-error @+1 {{initial values of the kind rope_cos need a list of frequencies}}
lm.variable @w table : tensor<4x8xf32> init rope_cos(scale = 1.0)

// -----

// expected-error @+1 {{'lm.variable' op is no scalar, and has a setting or a step_value}}
lm.variable @w parameter : tensor<4x8xf32> init zeros setting "optimizer.eps"

// -----

// expected-error @+1 {{'lm.variable' op has both a setting and a step_value}}
lm.variable @s scalar : tensor<f32> init none setting "optimizer.eps" step_value learning_rate

// -----

// expected-error @+1 {{'lm.variable' op is the learning rate of a group, and has none}}
lm.variable @s scalar : tensor<f32> init none step_value group_learning_rate

// -----

// expected-error @+1 {{'lm.variable' op has a group, and is neither a parameter nor the learning rate of a group}}
lm.variable @w gradient : tensor<4x8xf32> init zeros {group = #lm.group<name = "slow">}

// -----

func.func @attentionStarts(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'lm.attention' op has starts 3, expected 4}}
  %0:2 = lm.attention %q, %k, %v starts %s : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<3xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionKeyElements(%q: tensor<4x8xf32>, %k: tensor<4x4xbf16>, %v: tensor<4x4xbf16>) {
  // expected-error @+1 {{'lm.attention' op has queries of 'f32' but keys of 'bf16'}}
  %0:2 = lm.attention %q, %k, %v : (tensor<4x8xf32>, tensor<4x4xbf16>, tensor<4x4xbf16>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionLseElements(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>) {
  // expected-error @+1 {{'lm.attention' op has lse of 'f64' for queries of 'f32'}}
  %0:2 = lm.attention %q, %k, %v : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf64>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionWindow(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>) {
  // expected-error @+1 {{'lm.attention' op has window -1, expected at least 0}}
  %0:2 = lm.attention %q, %k, %v : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = -1 : i64}
  return
}

// -----

func.func @attentionGradFeatures(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x6xf32>, %v: tensor<4x6xf32>, %o: tensor<4x8xf32>, %l: tensor<4x2xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op has features that are not a multiple of head_dim 4}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x8xf32>, tensor<4x2xf32>) -> (tensor<4x8xf32>, tensor<4x6xf32>, tensor<4x6xf32>) {head_dim = 4 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradHeads(%g: tensor<4x6xf32>, %q: tensor<4x6xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x6xf32>, %l: tensor<4x3xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op has 3 heads, not a multiple of 2 key-value heads}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x6xf32>, tensor<4x3xf32>) -> (tensor<4x6xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradSequence(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op has 4 tokens, not a multiple of seq 3}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 3 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradKeyValue(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xbf16>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op needs k and v of one type}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xbf16>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradType(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xbf16>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op must keep the type of q}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xbf16>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradKeyRows(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<2x4xf32>, %v: tensor<2x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op has key rows 2, expected 4}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<2x4xf32>, tensor<2x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<2x4xf32>, tensor<2x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradLseRows(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<2x4xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op has lse rows 2, expected 4}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<2x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradLseColumns(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x8xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op has lse columns 8, expected 4}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradStarts(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>, %s: tensor<3xi32>) {
  // expected-error @+1 {{'lm.attention_grad' op has starts 3, expected 4}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l starts %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<3xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradTables(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>, %c: tensor<4x1xf32>, %s: tensor<2x1xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op has rotation tables of 'tensor<4x1xf32>', not 'tensor<2x1xf32>'}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l rope %c, %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x1xf32>, tensor<2x1xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradKeyElements(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xbf16>, %v: tensor<4x4xbf16>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op has queries of 'f32' but keys of 'bf16'}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xbf16>, tensor<4x4xbf16>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xbf16>, tensor<4x4xbf16>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradLseElements(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf64>) {
  // expected-error @+1 {{'lm.attention_grad' op has lse of 'f64' for queries of 'f32'}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf64>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradWindow(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op has window -1, expected at least 0}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = -1 : i64}
  return
}

// -----

func.func @attentionGradDout(%g: tensor<4x8xbf16>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op needs dout of the type of out}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xbf16>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradDq(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op must give dq, dk and dv the types of q, k and v}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xbf16>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradDk(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op must give dq, dk and dv the types of q, k and v}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @attentionGradDv(%g: tensor<4x8xf32>, %q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %v: tensor<4x4xf32>, %o: tensor<4x8xf32>, %l: tensor<4x4xf32>) {
  // expected-error @+1 {{'lm.attention_grad' op must give dq, dk and dv the types of q, k and v}}
  %0:3 = lm.attention_grad %g, %q, %k, %v, %o, %l : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x8xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// -----

func.func @lossGradChunk(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %t: tensor<4xi32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.linear_cross_entropy_grad' op needs a positive chunk}}
  %0:3 = lm.linear_cross_entropy_grad %x, %w, %t, %s chunk 0 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>, tensor<f32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>)
  return
}

// -----

func.func @lossGradWeight(%x: tensor<4x8xf32>, %w: tensor<16x4xf32>, %t: tensor<4xi32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.linear_cross_entropy_grad' op has weight columns 4, expected 8}}
  %0:3 = lm.linear_cross_entropy_grad %x, %w, %t, %s chunk 2 : (tensor<4x8xf32>, tensor<16x4xf32>, tensor<4xi32>, tensor<f32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<16x4xf32>)
  return
}

// -----

func.func @lossGradTargets(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %t: tensor<3xi32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.linear_cross_entropy_grad' op has targets 3, expected 4}}
  %0:3 = lm.linear_cross_entropy_grad %x, %w, %t, %s chunk 2 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<3xi32>, tensor<f32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>)
  return
}

// -----

func.func @lossGradScale(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %t: tensor<4xi32>, %s: tensor<f64>) {
  // expected-error @+1 {{'lm.linear_cross_entropy_grad' op needs loss and scale of one type}}
  %0:3 = lm.linear_cross_entropy_grad %x, %w, %t, %s chunk 2 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>, tensor<f64>) -> (tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>)
  return
}

// -----

func.func @lossGradDx(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %t: tensor<4xi32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.linear_cross_entropy_grad' op must give dx the type of x}}
  %0:3 = lm.linear_cross_entropy_grad %x, %w, %t, %s chunk 2 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>, tensor<f32>) -> (tensor<f32>, tensor<4x8xbf16>, tensor<16x8xf32>)
  return
}

// -----

func.func @lossGradDweight(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %t: tensor<4xi32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.linear_cross_entropy_grad' op must give dweight the shape of weight}}
  %0:3 = lm.linear_cross_entropy_grad %x, %w, %t, %s chunk 2 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>, tensor<f32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<8x16xf32>)
  return
}

// -----

func.func @lossGradAccumulator(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %t: tensor<4xi32>, %s: tensor<f32>, %a: tensor<16x8xbf16>) {
  // expected-error @+1 {{'lm.linear_cross_entropy_grad' op has an accumulator of type 'tensor<16x8xbf16>'}}
  %0:3 = lm.linear_cross_entropy_grad %x, %w, %t, %s acc %a chunk 2 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>, tensor<f32>, tensor<16x8xbf16>) -> (tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>)
  return
}

// -----

func.func @scaledCastType(%x: tensor<4xf32>, %max: tensor<f32>) {
  // expected-error @+1 {{'lm.scaled_cast' op must cast from f32 to f16 or from f16 to f32}}
  %0 = lm.scaled_cast %x, %max over 2 : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return
}

// -----

func.func @scaledCastRanks(%x: tensor<4xf32>, %max: tensor<f32>) {
  // expected-error @+1 {{'lm.scaled_cast' op needs at least one rank}}
  %0 = lm.scaled_cast %x, %max over 0 : (tensor<4xf32>, tensor<f32>) -> tensor<4xf16>
  return
}

// -----

func.func @fp8ScaleDtype(%max: tensor<f32>) {
  // expected-error @+1 {{'lm.fp8_scale' op has the dtype 'bf16'; give f8E4M3FN or f8E5M2}}
  %0 = lm.fp8_scale %max of bf16 : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @scaledMatmulDepth(%a: tensor<4x8xf8E4M3FN>, %b: tensor<6x8xf8E4M3FN>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.scaled_matmul' op has contraction size of b 6, expected 8}}
  %0 = lm.scaled_matmul %a, %b scales %s, %s : (tensor<4x8xf8E4M3FN>, tensor<6x8xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @scaledMatmulResidual(%a: tensor<4x8xf8E4M3FN>, %b: tensor<6x8xf8E4M3FN>, %s: tensor<f32>, %r: tensor<4x6xf32>) {
  // expected-error @+1 {{'lm.scaled_matmul' op adds a matrix of type 'tensor<4x6xf32>'}}
  %0 = lm.scaled_matmul %a, %b scales %s, %s residual %r : (tensor<4x8xf8E4M3FN>, tensor<6x8xf8E4M3FN>, tensor<f32>, tensor<f32>, tensor<4x6xf32>) -> tensor<4x6xbf16> {transpose_b}
  return
}

// -----

func.func @scaledMatmulBias(%a: tensor<4x8xf8E4M3FN>, %b: tensor<6x8xf8E4M3FN>, %s: tensor<f32>, %r: tensor<4xf32>) {
  // expected-error @+1 {{'lm.scaled_matmul' op has bias size 4, expected 6}}
  %0 = lm.scaled_matmul %a, %b scales %s, %s bias %r : (tensor<4x8xf8E4M3FN>, tensor<6x8xf8E4M3FN>, tensor<f32>, tensor<f32>, tensor<4xf32>) -> tensor<4x6xbf16> {transpose_b}
  return
}

// -----

func.func @scaledMatmulGradDtype(%a: tensor<4x8xf8E4M3FN>, %b: tensor<6x8xf8E4M3FN>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.scaled_matmul' op has the grad_dtype 'f32'; give f8E4M3FN or f8E5M2}}
  %0 = lm.scaled_matmul %a, %b scales %s, %s : (tensor<4x8xf8E4M3FN>, tensor<6x8xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<4x6xf32> {transpose_b, grad_dtype = f32}
  return
}

// -----

func.func @scaleType(%x: tensor<4xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.scale' op must keep the type of its input}}
  %0 = lm.scale %x, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xbf16>
  return
}

// -----

func.func @scaleFactor(%x: tensor<4xbf16>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.scale' op has elements of 'bf16' but a factor of 'f32'}}
  %0 = lm.scale %x, %s : (tensor<4xbf16>, tensor<f32>) -> tensor<4xbf16>
  return
}

// -----

func.func @normOfNothing() {
  // expected-error @+1 {{'lm.global_norm' op needs an operand}}
  %0 = "lm.global_norm"() : () -> tensor<f32>
  return
}

// -----

func.func @normElements(%x: tensor<4xf64>) {
  // expected-error @+1 {{'lm.global_norm' op has a result of 'f32' for elements of 'f64'}}
  %0 = lm.global_norm %x : (tensor<4xf64>) -> tensor<f32>
  return
}

// -----

func.func @guardedNormElements(%norm: tensor<f32>, %loss: tensor<f64>) {
  // expected-error @+1 {{'lm.guard_norm' op has operands of 'tensor<f64>' and a result of 'tensor<f32>'}}
  %0 = lm.guard_norm %norm, %loss limits %norm, %norm : (tensor<f32>, tensor<f64>, tensor<f32>, tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @normOfNoParts() {
  // expected-error @+1 {{'lm.norm_of_parts' op needs an operand}}
  %0 = "lm.norm_of_parts"() : () -> tensor<f32>
  return
}

// -----

func.func @normOfPartsElements(%x: tensor<4xf32>) {
  // expected-error @+1 {{'lm.norm_of_parts' op has a result of 'f64' for elements of 'f32'}}
  %0 = lm.norm_of_parts %x : (tensor<4xf32>) -> tensor<f64>
  return
}

// -----

func.func @adamwGradient(%p: tensor<4x8xf32>, %g: tensor<4x8xbf16>, %m: tensor<4x8xf32>, %v: tensor<4x8xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.adamw' op needs parameter, gradient and moments of one type, has 'tensor<4x8xf32>' and 'tensor<4x8xbf16>'}}
  %0:5 = lm.adamw %p, %g, %m, %v norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<4x8xf32>, tensor<4x8xbf16>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @adamwMoment(%p: tensor<4x8xf32>, %g: tensor<4x8xf32>, %m: tensor<4x8xf32>, %v: tensor<8x4xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.adamw' op needs parameter, gradient and moments of one type, has 'tensor<4x8xf32>' and 'tensor<8x4xf32>'}}
  %0:5 = lm.adamw %p, %g, %m, %v norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<8x4xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8x4xf32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @adamwSums(%p: tensor<4x8xf32>, %g: tensor<4x8xf32>, %m: tensor<4x8xf32>, %v: tensor<4x8xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.adamw' op has sums of squares 8, expected 4}}
  %0:5 = lm.adamw %p, %g, %m, %v norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<8xf32>)
  return
}

// -----

func.func @adamwSumsOfAVector(%p: tensor<4xf32>, %g: tensor<4xf32>, %m: tensor<4xf32>, %v: tensor<4xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.adamw' op has sums of squares 4, expected 1}}
  %0:5 = lm.adamw %p, %g, %m, %v norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @adamwCompute(%p: tensor<4x8xf32>, %g: tensor<4x8xf32>, %m: tensor<4x8xf32>, %v: tensor<4x8xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.adamw' op has a compute copy of type 'tensor<8x4xbf16>' for a parameter of type 'tensor<4x8xf32>'}}
  %0:6 = lm.adamw %p, %g, %m, %v norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<8x4xbf16>)
  return
}

// -----

func.func private @layer()
func.func @layerIndex() {
  // expected-error @+1 {{'func.call' op has lm.layer = -1 : i64; only a func.call has it, and it is an i64 from 0 on}}
  call @layer() {lm.layer = -1 : i64} : () -> ()
  return
}

// -----

// expected-error @+1 {{'func.func' op has lm.layer = 0 : i64; only a func.call has it}}
func.func @layerOfFunction() attributes {lm.layer = 0 : i64} {
  return
}

// -----

func.func @muonMomentum(%p: tensor<8x16xf32>, %m: tensor<8x16xbf16>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.muon' op needs parameter, gradient and momentum of one type, has 'tensor<8x16xf32>' and 'tensor<8x16xbf16>'}}
  %0:4 = lm.muon %p, %p, %m norm %s lr %s momentum %s eps %s clip_grad %s : (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xbf16>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8x16xf32>, tensor<8x16xbf16>, tensor<8xf32>, tensor<8xf32>)
  return
}

// -----

func.func @muonSums(%p: tensor<8x16xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.muon' op has sums of squares 1, expected 8}}
  %0:4 = lm.muon %p, %p, %p norm %s lr %s momentum %s eps %s clip_grad %s : (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8x16xf32>, tensor<8x16xf32>, tensor<1xf32>, tensor<1xf32>)
  return
}

// -----

func.func @muonCoefficients(%d: tensor<8x16xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.orthogonalize' op has 2 coefficients, expected 3}}
  %0 = lm.orthogonalize %d rows 8 eps %s : (tensor<8x16xf32>, tensor<f32>) -> tensor<8x16xf32> {ns_coefficients = array<f64: 3.0, -4.0>}
  return
}

// -----

func.func @muonRows(%d: tensor<8x16xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.orthogonalize' op has matrices of 3 rows in a 'tensor<8x16xf32>'}}
  %0 = lm.orthogonalize %d rows 3 eps %s : (tensor<8x16xf32>, tensor<f32>) -> tensor<8x16xf32>
  return
}

// -----

func.func @muonParts(%d: tensor<8x16xf32>) {
  // expected-error @+1 {{'lm.scale_matrices' op has parts 1, expected 0}}
  %0 = lm.scale_matrices %d : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return
}

// -----

func.func @muonPart(%d: tensor<8x16xf32>) {
  // expected-error @+1 {{'lm.scale_matrices' op has a part of type 'tensor<8x16xf32>' for #lm.matrix<offset = 0, rows = 6, columns = 16, fan_in = 16>}}
  %0 = lm.scale_matrices %d : (tensor<8x16xf32>) -> tensor<8x16xf32> {matrices = [#lm.matrix<offset = 0, rows = 6, columns = 16, fan_in = 16>]}
  return
}

// -----

func.func @muonBlock(%d: tensor<6x4xf32>) {
  // expected-error @+1 {{'lm.scale_matrices' op has a block whose matrices end at column 4}}
  %0 = lm.scale_matrices %d : (tensor<6x4xf32>) -> tensor<6x8xf32> {matrices = [#lm.matrix<offset = 0, rows = 6, columns = 4, fan_in = 6, pitch = 8, transposed = true>]}
  return
}

// -----

func.func @muonTransposed(%d: tensor<6x4xf32>) {
  // expected-error @+1 {{'lm.scale_matrices' op has the matrix #lm.matrix<offset = 0, rows = 6, columns = 4, fan_in = 4, transposed = true> at element 0}}
  %0 = lm.scale_matrices %d : (tensor<6x4xf32>) -> tensor<6x4xf32> {matrices = [#lm.matrix<offset = 0, rows = 6, columns = 4, fan_in = 4, transposed = true>]}
  return
}

// -----

// expected-error @+1 {{'lm.variable' op has linear maps to [8, 4] columns, but is a 'tensor<6x8xf32>'}}
lm.variable @w parameter : tensor<6x8xf32> init ones {columns = array<i64: 8, 4>}

// -----

func.func @muonOverlap(%d: tensor<6x16xf32>) {
  // expected-error @+1 {{'lm.scale_matrices' op has the matrix #lm.matrix<offset = 90, rows = 6, columns = 16, fan_in = 16> at element 96}}
  %0 = lm.scale_matrices %d, %d : (tensor<6x16xf32>, tensor<6x16xf32>) -> tensor<16x16xf32> {matrices = [#lm.matrix<offset = 0, rows = 6, columns = 16, fan_in = 16>, #lm.matrix<offset = 90, rows = 6, columns = 16, fan_in = 16>]}
  return
}

// -----

func.func @muonOutside(%d: tensor<8x16xf32>) {
  // expected-error @+1 {{'lm.scale_matrices' op has matrices of 144 elements in a tensor of 128}}
  %0 = lm.scale_matrices %d : (tensor<8x16xf32>) -> tensor<8x16xf32> {matrices = [#lm.matrix<offset = 16, rows = 8, columns = 16, fan_in = 16>]}
  return
}

// -----

func.func @ownRows(%x: tensor<8x16xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{'lm.own_rows' op takes a 'tensor<3x16xf32>' from a 'tensor<8x16xf32>'}}
  %0 = lm.own_rows %x of %s : (tensor<8x16xf32>, tensor<f32>) -> tensor<3x16xf32>
  return
}

// -----

func.func @moreThanThereAre(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{'lm.route' op chooses 5 of 3 experts}}
  %0:4 = lm.route %x : (tensor<4x3xf32>) -> (tensor<4x5xf32>, tensor<4x5xi32>, tensor<3xf32>, tensor<3xf32>)
  return
}

// -----

func.func @otherCounts(%x: tensor<4x3xf32>) {
  // expected-error @+1 {{'lm.route' op counts is 'tensor<2xf32>', not [3]}}
  %0:4 = lm.route %x : (tensor<4x3xf32>) -> (tensor<4x2xf32>, tensor<4x2xi32>, tensor<2xf32>, tensor<3xf32>)
  return
}

// -----

func.func @wideWeights(%x: tensor<4x3xbf16>) {
  // expected-error @+1 {{'lm.route' op computes 'tensor<4x3xbf16>' in 'tensor<4x2xf64>'}}
  %0:4 = lm.route %x : (tensor<4x3xbf16>) -> (tensor<4x2xf64>, tensor<4x2xi32>, tensor<3xf32>, tensor<3xf32>)
  return
}

// -----

func.func @shortBias(%x: tensor<4x3xf32>, %b: tensor<2xf32>) {
  // expected-error @+1 {{'lm.route' op bias is 'tensor<2xf32>', not [3]}}
  %0:4 = lm.route %x bias %b : (tensor<4x3xf32>, tensor<2xf32>) -> (tensor<4x2xf32>, tensor<4x2xi32>, tensor<3xf32>, tensor<3xf32>)
  return
}

// -----

func.func @massOfSigmoids(%x: tensor<4x3xf32>, %e: tensor<4x2xi32>, %w: tensor<4x2xf32>, %m: tensor<3xf32>) {
  // expected-error @+1 {{'lm.route_grad' op has a gradient of the mass, which sigmoids do not have}}
  %0 = lm.route_grad %x, %e, %w mass %m : (tensor<4x3xf32>, tensor<4x2xi32>, tensor<4x2xf32>, tensor<3xf32>) -> tensor<4x3xf32> {sigmoid}
  return
}

// -----

func.func @fewGradients(%x: tensor<4x3xf32>, %e: tensor<4x2xi32>, %w: tensor<4x1xf32>) {
  // expected-error @+1 {{'lm.route_grad' op dweights is 'tensor<4x1xf32>', not [4, 2]}}
  %0 = lm.route_grad %x, %e, %w : (tensor<4x3xf32>, tensor<4x2xi32>, tensor<4x1xf32>) -> tensor<4x3xf32>
  return
}

// -----

func.func @noExpert(%e: tensor<4x2xi32>) {
  // expected-error @+1 {{'lm.sort_rows' op has no expert}}
  %0:3 = lm.sort_rows %e : (tensor<4x2xi32>) -> (tensor<1xi32>, tensor<8xi32>, tensor<8xi32>)
  return
}

// -----

func.func @fewPlaces(%e: tensor<4x2xi32>) {
  // expected-error @+1 {{'lm.sort_rows' op places is 'tensor<7xi32>', not [8]}}
  %0:3 = lm.sort_rows %e : (tensor<4x2xi32>) -> (tensor<4xi32>, tensor<8xi32>, tensor<7xi32>)
  return
}

// -----

func.func @partOfARow(%x: tensor<3x8xf32>, %r: tensor<8xi32>) {
  // expected-error @+1 {{'lm.take_rows' op takes 8 rows of 8 choices of 3 tokens}}
  %0 = lm.take_rows %x, %r, %r : (tensor<3x8xf32>, tensor<8xi32>, tensor<8xi32>) -> tensor<8x8xf32>
  return
}

// -----

func.func @partOfASum(%x: tensor<8x8xf32>, %r: tensor<8xi32>) {
  // expected-error @+1 {{'lm.take_rows_grad' op adds 8 rows of 8 choices to 3 tokens}}
  %0 = lm.take_rows_grad %x, %r : (tensor<8x8xf32>, tensor<8xi32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @groupsWithoutRank(%e: tensor<4x2xi32>) {
  // expected-error @+1 {{'lm.sort_rows' op needs the rank if, and only if, it has several groups of experts}}
  %0:3 = lm.sort_rows %e : (tensor<4x2xi32>) -> (tensor<4xi32>, tensor<8xi32>, tensor<8xi32>) {groups = 2 : i64}
  return
}

// -----

func.func @noWindow() {
  // expected-error @+1 {{'lm.late_rows' op needs the offsets of at least one window}}
  %0 = lm.late_rows : () -> tensor<1xf32>
  return
}

// -----

func.func @rowsPastTheLast(%e: tensor<4x2xi32>, %k: tensor<f32>) {
  // expected-error @+1 {{'lm.sort_rows' op sorts 4 rows of 8 choices}}
  %0:3 = lm.sort_rows %e of %k : (tensor<4x2xi32>, tensor<f32>) -> (tensor<4xi32>, tensor<4xi32>, tensor<8xi32>) {first = 5 : i64, groups = 2 : i64}
  return
}

// -----

func.func @otherRows(%y: tensor<8x8xf32>, %w: tensor<4x3xf32>, %r: tensor<8xi32>) {
  // expected-error @+1 {{'lm.combine_rows' op places is 'tensor<8xi32>', not [12]}}
  %0 = lm.combine_rows %y, %w, %r, %r : (tensor<8x8xf32>, tensor<4x3xf32>, tensor<8xi32>, tensor<8xi32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @otherGradient(%d: tensor<4x8xf32>, %y: tensor<8x8xf32>, %w: tensor<4x2xf32>, %r: tensor<8xi32>) {
  // expected-error @+1 {{'lm.combine_rows_grad' op has gradients of other types than y and weights}}
  %0:2 = lm.combine_rows_grad %d, %y, %w, %r, %r : (tensor<4x8xf32>, tensor<8x8xf32>, tensor<4x2xf32>, tensor<8xi32>, tensor<8xi32>) -> (tensor<8x8xbf16>, tensor<4x2xf32>)
  return
}

// -----

func.func @otherMatrices(%x: tensor<8x8xf32>, %w: tensor<17x8xf32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'lm.expert_linear' op weight is 'tensor<17x8xf32>', not [18, 8]}}
  %0 = lm.expert_linear %x, %w, %o : (tensor<8x8xf32>, tensor<17x8xf32>, tensor<4xi32>) -> tensor<8x6xf32>
  return
}

// -----

func.func @otherAccumulator(%x: tensor<8x8xf32>, %o: tensor<4xi32>, %a: tensor<17x8xf32>) {
  // expected-error @+1 {{'lm.expert_linear_grad' op has an accumulator of type 'tensor<17x8xf32>'}}
  %0 = lm.expert_linear_grad %x, %x, %o acc %a : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<4xi32>, tensor<17x8xf32>) -> tensor<24x8xf32>
  return
}

// -----

func.func @otherHalves(%x: tensor<8x7xf32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'lm.expert_swiglu' op x is 'tensor<8x7xf32>', not [8, 6]}}
  %0 = lm.expert_swiglu %x, %o : (tensor<8x7xf32>, tensor<4xi32>) -> tensor<8x3xf32>
  return
}

// -----

func.func @halvesOfOtherType(%x: tensor<8x6xf32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'lm.expert_swiglu' op has x of 'tensor<8x6xf32>', and y of 'tensor<8x3xbf16>'}}
  %0 = lm.expert_swiglu %x, %o : (tensor<8x6xf32>, tensor<4xi32>) -> tensor<8x3xbf16>
  return
}

// -----

func.func @halvesOfNoExpert(%x: tensor<8x6xf32>, %o: tensor<1xi32>) {
  // expected-error @+1 {{'lm.expert_swiglu' op has no expert}}
  %0 = lm.expert_swiglu %x, %o : (tensor<8x6xf32>, tensor<1xi32>) -> tensor<8x3xf32>
  return
}

// -----

func.func @otherGradientOfHalves(%d: tensor<8x3xf32>, %x: tensor<8x6xf32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'lm.expert_swiglu_grad' op has a gradient of another type than x}}
  %0 = lm.expert_swiglu_grad %d, %x, %o : (tensor<8x3xf32>, tensor<8x6xf32>, tensor<4xi32>) -> tensor<8x3xf32>
  return
}

// -----

func.func @gradientOfOtherRows(%d: tensor<7x3xf32>, %x: tensor<8x6xf32>, %o: tensor<4xi32>) {
  // expected-error @+1 {{'lm.expert_swiglu_grad' op x is 'tensor<8x6xf32>', not [7, 6]}}
  %0 = lm.expert_swiglu_grad %d, %x, %o : (tensor<7x3xf32>, tensor<8x6xf32>, tensor<4xi32>) -> tensor<8x6xf32>
  return
}

// -----

func.func @otherMass(%l: tensor<f32>, %c: tensor<3xf32>, %m: tensor<4xf32>) {
  // expected-error @+1 {{'lm.balance_loss' op mass is 'tensor<4xf32>', not [3]}}
  %0 = lm.balance_loss %l, %c, %m factor 1.0 : (tensor<f32>, tensor<3xf32>, tensor<4xf32>) -> tensor<f32>
  return
}

// -----

func.func @entropyOfOtherExperts(%l: tensor<4x3xf32>) {
  // expected-error @+1 {{'lm.router_entropy' op result is 'tensor<4xf32>', not [3]}}
  %0 = lm.router_entropy %l : (tensor<4x3xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @entropyInOtherPrecision(%l: tensor<4x3xf64>) {
  // expected-error @+1 {{'lm.router_entropy' op computes 'tensor<4x3xf64>' in 'tensor<3xf32>'}}
  %0 = lm.router_entropy %l : (tensor<4x3xf64>) -> tensor<3xf32>
  return
}

// -----

func.func @gatedOfOddColumns(%x: tensor<8x6xf32>, %w: tensor<7x6xf32>) {
  // expected-error @+1 {{'lm.linear_swiglu' op has columns of the halves 7, expected 6}}
  %gu, %a = lm.linear_swiglu %x, %w : (tensor<8x6xf32>, tensor<7x6xf32>) -> (tensor<8x7xf32>, tensor<8x3xf32>)
  return
}

// -----

func.func @gatedOfOtherType(%x: tensor<8x6xf32>, %w: tensor<8x6xf32>) {
  // expected-error @+1 {{'lm.linear_swiglu' op has a of type 'tensor<8x4xbf16>' for halves of 'tensor<8x8xf32>'}}
  %gu, %a = lm.linear_swiglu %x, %w : (tensor<8x6xf32>, tensor<8x6xf32>) -> (tensor<8x8xf32>, tensor<8x4xbf16>)
  return
}

// -----

func.func @gatedByAnotherWeight(%x: tensor<8x6xf32>, %w: tensor<8x5xf32>) {
  // expected-error @+1 {{'lm.linear_swiglu' op has weight columns 5, expected 6}}
  %gu, %a = lm.linear_swiglu %x, %w : (tensor<8x6xf32>, tensor<8x5xf32>) -> (tensor<8x8xf32>, tensor<8x4xf32>)
  return
}

// -----

func.func @otherGradientOfGates(%dy: tensor<8x6xf32>, %w: tensor<6x4xf32>, %gu: tensor<8x8xf32>) {
  // expected-error @+1 {{'lm.swiglu_linear_grad' op has a gradient of another type than gu}}
  %dgu, %a = lm.swiglu_linear_grad %dy, %w, %gu : (tensor<8x6xf32>, tensor<6x4xf32>, tensor<8x8xf32>) -> (tensor<8x6xf32>, tensor<8x4xf32>)
  return
}

// -----

func.func @gradientOfGatesByAnotherWeight(%dy: tensor<8x6xf32>, %w: tensor<5x4xf32>, %gu: tensor<8x8xf32>) {
  // expected-error @+1 {{'lm.swiglu_linear_grad' op has weight rows 5, expected 6}}
  %dgu, %a = lm.swiglu_linear_grad %dy, %w, %gu : (tensor<8x6xf32>, tensor<5x4xf32>, tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x4xf32>)
  return
}
