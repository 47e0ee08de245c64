// The options of a Llama layer: 8 tokens of 16 features, 2 heads of 8 and 1 KV head, 32 in the MLP.
// RUN: lmc-opt %s --lm-autodiff --lm-accumulate-gradients=steps=3 --cse "--lm-analyze-recompute=flops-per-second=1000 bytes-per-second=1024" | FileCheck %s
// RUN: not lmc-opt %s --lm-analyze-recompute=bytes-per-second=0 2>&1 | FileCheck %s --check-prefix=RATE

// RATE: error: needs positive flops-per-second and bytes-per-second to price recompute

// Kept: q 512, k and v 256 each, attention's output 512 and its statistics 64, the residual 512,
// gate and up 1024 each.
// CHECK:      module attributes {lm.recompute_options = {layer = {forward_flops = 3.891200e+04 : f64, layers = array<i64: 0, 1>,
// CHECK-SAME: {flops = 0.000000e+00 : f64, kept_bytes = 4160 : i64, name = "none", ops = ["norm1", "norm2", "mlp"], recomputed = array<i64: 0, 9, 12>, seconds = 2.000000e+00 : f64},
// CHECK-SAME: {flops = 0.000000e+00 : f64, kept_bytes = 4160 : i64, name = "activation", ops = ["norm1", "norm2", "mlp"], recomputed = array<i64: 0, 9, 12>, seconds = 2.000000e+00 : f64},
// Two products of 2 * 8 * 16 * 32 at 1000 a second.
// CHECK-SAME: {flops = 1.638400e+04 : f64, kept_bytes = 2112 : i64, name = "full", ops = ["norm1", "norm2", "gate", "up", "mlp"], recomputed = array<i64: 0, 9, 10, 11, 12>, seconds = 1.838400e+01 : f64},
// Not "down" and "residual2": the backward half needs neither.
// CHECK-SAME: kept_bytes = 0 : i64, name = "block", ops = ["norm1", "q", "q_rope", "k", "k_rope", "v", "attention", "o", "residual1", "norm2", "gate", "up", "mlp"],
// Attention's 576 bytes take 2048 operations at 500 a second.
// CHECK-SAME: kept_bytes = 3584 : i64, name = "hull1", ops = ["norm1", "attention", "norm2", "mlp"], recomputed = array<i64: 0, 6, 9, 12>, seconds = 6.096000e+00 : f64},
// CHECK-SAME: kept_bytes = 1280 : i64, name = "hull2", ops = ["norm1", "v", "attention", "norm2", "gate", "up", "mlp"],
// CHECK-SAME: kept_bytes = 768 : i64, name = "hull3", ops = ["norm1", "q", "q_rope", "v", "attention", "norm2", "gate", "up", "mlp"],
// CHECK-NOT:  hull4

module {
lm.variable @x input : tensor<8x16xf32> init none
lm.variable @targets input : tensor<8xi32> init none
lm.variable @cos table : tensor<8x4xf32> init none
lm.variable @sin table : tensor<8x4xf32> init none
lm.variable @n parameter : tensor<16xf32> init ones
lm.variable @wq parameter : tensor<16x16xf32> init zeros
lm.variable @wkv parameter : tensor<8x16xf32> init zeros
lm.variable @wgu parameter : tensor<32x16xf32> init zeros
lm.variable @wd parameter : tensor<16x32xf32> init zeros

func.func private @layer(%x: tensor<8x16xf32>, %cos: tensor<8x4xf32>, %sin: tensor<8x4xf32>,
                         %n: tensor<16xf32>, %wq: tensor<16x16xf32>, %wk: tensor<8x16xf32>,
                         %wv: tensor<8x16xf32>, %wo: tensor<16x16xf32>, %wg: tensor<32x16xf32>,
                         %wu: tensor<32x16xf32>, %wd: tensor<16x32xf32>) -> tensor<8x16xf32> {
  %h = lm.rms_norm %x, %n eps 1.0e-5 : (tensor<8x16xf32>, tensor<16xf32>) -> tensor<8x16xf32> loc("norm1")
  %q0 = lm.linear %h, %wq : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32> loc("q")
  %q = lm.rope %q0, %cos, %sin head_dim 8 : (tensor<8x16xf32>, tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x16xf32> loc("q_rope")
  %k0 = lm.linear %h, %wk : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x8xf32> loc("k")
  %k = lm.rope %k0, %cos, %sin head_dim 8 : (tensor<8x8xf32>, tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x8xf32> loc("k_rope")
  %v = lm.linear %h, %wv : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x8xf32> loc("v")
  %a, %lse = lm.attention %q, %k, %v : (tensor<8x16xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> (tensor<8x16xf32>, tensor<8x2xf32>) {head_dim = 8 : i64, scale = 0.35 : f64, seq = 8 : i64} loc("attention")
  %o = lm.linear %a, %wo : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32> loc("o")
  %x1 = lm.add %x, %o : tensor<8x16xf32> loc("residual1")
  %h1 = lm.rms_norm %x1, %n eps 1.0e-5 : (tensor<8x16xf32>, tensor<16xf32>) -> tensor<8x16xf32> loc("norm2")
  %g = lm.linear %h1, %wg : (tensor<8x16xf32>, tensor<32x16xf32>) -> tensor<8x32xf32> loc("gate")
  %u = lm.linear %h1, %wu : (tensor<8x16xf32>, tensor<32x16xf32>) -> tensor<8x32xf32> loc("up")
  %s = lm.swiglu %g, %u : tensor<8x32xf32> loc("mlp")
  %d = lm.linear %s, %wd : (tensor<8x32xf32>, tensor<16x32xf32>) -> tensor<8x16xf32> loc("down")
  %y = lm.add %x1, %d : tensor<8x16xf32> loc("residual2")
  return %y : tensor<8x16xf32>
}

func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<8x16xf32>
  %targets = lm.load @targets : tensor<8xi32>
  %cos = lm.load @cos : tensor<8x4xf32>
  %sin = lm.load @sin : tensor<8x4xf32>
  %n = lm.load @n : tensor<16xf32>
  %wq = lm.load @wq : tensor<16x16xf32>
  %wkv = lm.load @wkv : tensor<8x16xf32>
  %wgu = lm.load @wgu : tensor<32x16xf32>
  %wd = lm.load @wd : tensor<16x32xf32>
  %y = call @layer(%x, %cos, %sin, %n, %wq, %wkv, %wkv, %wq, %wgu, %wgu, %wd) : (tensor<8x16xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<16xf32>, tensor<16x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x16xf32>, tensor<32x16xf32>, tensor<32x16xf32>, tensor<16x32xf32>) -> tensor<8x16xf32>
  %z = call @layer(%y, %cos, %sin, %n, %wq, %wkv, %wkv, %wq, %wgu, %wgu, %wd) : (tensor<8x16xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<16xf32>, tensor<16x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<16x16xf32>, tensor<32x16xf32>, tensor<32x16xf32>, tensor<16x32xf32>) -> tensor<8x16xf32>
  %loss = lm.linear_cross_entropy %z, %wq, %targets chunk 8 : (tensor<8x16xf32>, tensor<16x16xf32>, tensor<8xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}
}
