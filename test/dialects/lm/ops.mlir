// Every op of the lm dialect prints, parses and prints the same.
// RUN: lmc-opt %s | lmc-opt | FileCheck %s
// RUN: lmc-opt %s --mlir-print-op-generic | lmc-opt | FileCheck %s

// CHECK: lm.variable @w parameter : tensor<8x4xf32> init normal(stddev = 2.000000e-02 : f64) {weight_decay}
lm.variable @w parameter : tensor<8x4xf32> init normal(stddev = 0.02) {weight_decay}
// CHECK: lm.variable @w.compute compute_copy : tensor<8x4xbf16> init copy_of(source = "w") {parameter = "w"}
lm.variable @w.compute compute_copy : tensor<8x4xbf16> init copy_of(source = "w") {parameter = "w"}
// CHECK: lm.variable @w.grad gradient : tensor<8x4xf32> init zeros {parameter = "w"}
lm.variable @w.grad gradient : tensor<8x4xf32> init zeros {parameter = "w"}
// CHECK: lm.variable @w.moment1 moment1 : tensor<8x4xf32>
lm.variable @w.moment1 moment1 : tensor<8x4xf32> init zeros {parameter = "w"}
// CHECK: lm.variable @w.moment2 moment2 : tensor<8x4xf32>
lm.variable @w.moment2 moment2 : tensor<8x4xf32> init zeros {parameter = "w"}
// CHECK: lm.variable @cos table : tensor<2x1xf32> init rope_cos(scale = 1.000000e+00 : f64, frequencies = [1.000000e+00])
lm.variable @cos table : tensor<2x1xf32> init rope_cos(scale = 1.0, frequencies = [1.0])
// CHECK: lm.variable @lr scalar : tensor<f32> init none
lm.variable @lr scalar : tensor<f32> init none
// CHECK: lm.variable @eps scalar : tensor<f32> init none setting "optimizer.eps"
lm.variable @eps scalar : tensor<f32> init none setting "optimizer.eps"
// CHECK: lm.variable @correction scalar : tensor<f32> init none step_value bias_correction1
lm.variable @correction scalar : tensor<f32> init none step_value bias_correction1
// CHECK: lm.variable @g parameter : tensor<4xf32> init ones {group = #lm.group<name = "slow", own_decay = true>, weight_decay}
lm.variable @g parameter : tensor<4xf32> init ones {weight_decay, group = #lm.group<name = "slow", own_decay = true>}
// CHECK: lm.variable @lr.slow scalar : tensor<f32> init none step_value group_learning_rate {group = #lm.group<name = "slow", f32_moments = true>}
lm.variable @lr.slow scalar : tensor<f32> init none step_value group_learning_rate {group = #lm.group<name = "slow", f32_moments = true>}
// CHECK: lm.variable @ids input : tensor<4xi32> init none
lm.variable @ids input : tensor<4xi32> init none

// CHECK-LABEL: func.func @state
func.func @state() {
  // CHECK: %[[W:.*]] = lm.load @w : tensor<8x4xf32>
  %w = lm.load @w : tensor<8x4xf32>
  // CHECK: lm.accumulate %[[W]], @w.grad : tensor<8x4xf32>
  lm.accumulate %w, @w.grad : tensor<8x4xf32>
  // CHECK: lm.store %[[W]], @w.moment1 : tensor<8x4xf32>
  lm.store %w, @w.moment1 : tensor<8x4xf32>
  return
}

// CHECK-LABEL: func.func @embedding(
// CHECK-SAME:    %[[IDS:.*]]: tensor<4xi32>, %[[TABLE:.*]]: tensor<16x8xf32>, %[[DY:.*]]: tensor<4x8xf32>)
func.func @embedding(%ids: tensor<4xi32>, %table: tensor<16x8xf32>, %dy: tensor<4x8xf32>) {
  // CHECK: lm.embedding %[[IDS]], %[[TABLE]] : (tensor<4xi32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  %y = lm.embedding %ids, %table : (tensor<4xi32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  // CHECK: lm.embedding_grad %[[IDS]], %[[DY]] : (tensor<4xi32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  %d = lm.embedding_grad %ids, %dy : (tensor<4xi32>, tensor<4x8xf32>) -> tensor<16x8xf32>
  // CHECK: lm.embedding_grad %[[IDS]], %[[DY]] acc %[[TABLE]] : (tensor<4xi32>, tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %a = lm.embedding_grad %ids, %dy acc %table : (tensor<4xi32>, tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  return
}

// CHECK-LABEL: func.func @products(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32>, %[[W:.*]]: tensor<6x8xf32>, %[[B:.*]]: tensor<6xf32>, %[[ACC:.*]]: tensor<4x6xf32>)
func.func @products(%x: tensor<4x8xf32>, %w: tensor<6x8xf32>, %b: tensor<6xf32>, %acc: tensor<4x6xf32>) {
  // CHECK: lm.matmul %[[X]], %[[W]] : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x6xf32> {transpose_b}
  %0 = lm.matmul %x, %w : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x6xf32> {transpose_b}
  // CHECK: lm.matmul %[[X]], %[[W]] acc %[[ACC]] : (tensor<4x8xf32>, tensor<6x8xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> {transpose_b}
  %1 = lm.matmul %x, %w acc %acc : (tensor<4x8xf32>, tensor<6x8xf32>, tensor<4x6xf32>) -> tensor<4x6xf32> {transpose_b}
  // CHECK: lm.matmul %[[X]], %[[ACC]] : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<8x6xf32> {transpose_a}
  %2 = lm.matmul %x, %acc : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<8x6xf32> {transpose_a}
  // CHECK: lm.linear %[[X]], %[[W]] : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x6xf32>
  %3 = lm.linear %x, %w : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x6xf32>
  // CHECK: lm.linear %[[X]], %[[W]] bias %[[B]] : (tensor<4x8xf32>, tensor<6x8xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %4 = lm.linear %x, %w bias %b : (tensor<4x8xf32>, tensor<6x8xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  // CHECK: lm.linear %{{.*}}, %[[W]] bias %{{.*}} : (tensor<4x6xf32>, tensor<6x8xf32>, tensor<8xf32>) -> tensor<4x8xf32> {transposed}
  %sums = lm.sum_rows %x : (tensor<4x8xf32>) -> tensor<8xf32>
  %back = lm.linear %3, %w bias %sums : (tensor<4x6xf32>, tensor<6x8xf32>, tensor<8xf32>) -> tensor<4x8xf32> {transposed}
  // CHECK: lm.sum_rows %[[ACC]] : (tensor<4x6xf32>) -> tensor<6xf32>
  %5 = lm.sum_rows %acc : (tensor<4x6xf32>) -> tensor<6xf32>
  return
}

// CHECK-LABEL: func.func @rows(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xbf16>, %[[Y:.*]]: tensor<4x8xbf16>, %[[W:.*]]: tensor<8xf32>)
func.func @rows(%x: tensor<4x8xbf16>, %y: tensor<4x8xbf16>, %w: tensor<8xf32>) {
  // CHECK: lm.add %[[X]], %[[Y]] : tensor<4x8xbf16>
  %0 = lm.add %x, %y : tensor<4x8xbf16>
  // CHECK: lm.rms_norm %[[X]], %[[W]] eps 1.000000e-05 : (tensor<4x8xbf16>, tensor<8xf32>) -> tensor<4x8xbf16>
  %1 = lm.rms_norm %x, %w eps 1.0e-5 : (tensor<4x8xbf16>, tensor<8xf32>) -> tensor<4x8xbf16>
  // CHECK: lm.layer_norm %[[X]], %[[W]], %[[W]] eps 1.000000e-05 : (tensor<4x8xbf16>, tensor<8xf32>, tensor<8xf32>) -> tensor<4x8xbf16>
  %ln = lm.layer_norm %x, %w, %w eps 1.0e-5 : (tensor<4x8xbf16>, tensor<8xf32>, tensor<8xf32>) -> tensor<4x8xbf16>
  // CHECK: %{{.*}}, %{{.*}}, %{{.*}} = lm.layer_norm_grad %[[X]], %[[Y]], %[[W]] eps 1.000000e-05 : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<8xf32>) -> (tensor<4x8xbf16>, tensor<8xf32>, tensor<8xf32>)
  %lng:3 = lm.layer_norm_grad %x, %y, %w eps 1.0e-5 : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<8xf32>) -> (tensor<4x8xbf16>, tensor<8xf32>, tensor<8xf32>)
  // CHECK: lm.gelu %[[X]] : tensor<4x8xbf16>
  %gelu = lm.gelu %x : tensor<4x8xbf16>
  // CHECK: lm.gelu_grad %[[X]], %[[Y]] : tensor<4x8xbf16>
  %gelug = lm.gelu_grad %x, %y : tensor<4x8xbf16>
  // CHECK: %{{.*}}, %{{.*}} = lm.rms_norm_grad %[[X]], %[[Y]], %[[W]] eps 1.000000e-05 : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<8xf32>) -> (tensor<4x8xbf16>, tensor<8xf32>)
  %2:2 = lm.rms_norm_grad %x, %y, %w eps 1.0e-5 : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<8xf32>) -> (tensor<4x8xbf16>, tensor<8xf32>)
  // CHECK: lm.swiglu %[[X]], %[[Y]] : tensor<4x8xbf16>
  %3 = lm.swiglu %x, %y : tensor<4x8xbf16>
  // CHECK: %{{.*}}, %{{.*}} = lm.swiglu_grad %[[X]], %[[Y]], %[[X]] : tensor<4x8xbf16>
  %4:2 = lm.swiglu_grad %x, %y, %x : tensor<4x8xbf16>
  return
}

// CHECK-LABEL: func.func @attention(
// CHECK-SAME:    %[[Q:.*]]: tensor<4x8xf32>, %[[K:.*]]: tensor<4x4xf32>, %[[COS:.*]]: tensor<2x1xf32>, %[[LSE:.*]]: tensor<4x4xf32>)
func.func @attention(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %cos: tensor<2x1xf32>, %lse: tensor<4x4xf32>) {
  // CHECK: lm.rope %[[Q]], %[[COS]], %[[COS]] head_dim 2 : (tensor<4x8xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x8xf32>{{$}}
  %0 = lm.rope %q, %cos, %cos head_dim 2 : (tensor<4x8xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x8xf32>
  // CHECK: lm.rope {{.*}} -> tensor<4x8xf32> {inverse}
  %1 = lm.rope %q, %cos, %cos head_dim 2 : (tensor<4x8xf32>, tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<4x8xf32> {inverse}
  // CHECK: %{{.*}}, %{{.*}} = lm.attention %[[Q]], %[[K]], %[[K]] : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 2 : i64}
  %2:2 = lm.attention %q, %k, %k : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  // CHECK: lm.attention {{.*}} {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 2 : i64, window = 1 : i64}
  %3:2 = lm.attention %q, %k, %k : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 1 : i64}
  // CHECK: lm.attention_grad %[[Q]], %[[Q]], %[[K]], %[[K]], %[[Q]], %[[LSE]] : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, scale = 5.000000e-01 : f64, seq = 2 : i64}
  %4:3 = lm.attention_grad %q, %q, %k, %k, %q, %lse : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// CHECK-LABEL: func.func @documents(
// CHECK-SAME:    %[[Q:.*]]: tensor<4x8xf32>, %[[K:.*]]: tensor<4x4xf32>, %[[S:.*]]: tensor<4xi32>, %[[T:.*]]: tensor<2x1xf32>)
func.func @documents(%q: tensor<4x8xf32>, %k: tensor<4x4xf32>, %s: tensor<4xi32>, %t: tensor<2x1xf32>) {
  // CHECK: %[[O:.*]], %[[LSE:.*]] = lm.attention %[[Q]], %[[K]], %[[K]] starts %[[S]] : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64
  %o, %lse = lm.attention %q, %k, %k starts %s : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  // CHECK: lm.attention_grad %[[Q]], %[[Q]], %[[K]], %[[K]], %[[O]], %[[LSE]] starts %[[S]] : ({{.*}}, tensor<4xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64
  %0:3 = lm.attention_grad %q, %q, %k, %k, %o, %lse starts %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  // CHECK: lm.attention_grad %[[Q]], %[[Q]], %[[K]], %[[K]], %[[O]], %[[LSE]] starts %[[S]] rope %[[T]], %[[T]] : ({{.*}}, tensor<4xi32>, tensor<2x1xf32>, tensor<2x1xf32>) ->
  %1:3 = lm.attention_grad %q, %q, %k, %k, %o, %lse starts %s rope %t, %t : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4xi32>, tensor<2x1xf32>, tensor<2x1xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64}
  return
}

// CHECK-LABEL: func.func @loss(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32>, %[[W:.*]]: tensor<16x8xf32>, %[[T:.*]]: tensor<4xi32>, %[[S:.*]]: tensor<f32>)
func.func @loss(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>, %t: tensor<4xi32>, %s: tensor<f32>) {
  // CHECK: lm.linear_cross_entropy %[[X]], %[[W]], %[[T]] chunk 2 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>) -> tensor<f32>
  %0 = lm.linear_cross_entropy %x, %w, %t chunk 2 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>) -> tensor<f32>
  // CHECK: lm.linear_cross_entropy_grad %[[X]], %[[W]], %[[T]], %[[S]] chunk 2 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>, tensor<f32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>)
  %1:3 = lm.linear_cross_entropy_grad %x, %w, %t, %s chunk 2 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>, tensor<f32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>)
  // CHECK: lm.linear_cross_entropy_grad %[[X]], %[[W]], %[[T]], %[[S]] acc %[[W]] chunk 2 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>, tensor<f32>, tensor<16x8xf32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>)
  %2:3 = lm.linear_cross_entropy_grad %x, %w, %t, %s acc %w chunk 2 : (tensor<4x8xf32>, tensor<16x8xf32>, tensor<4xi32>, tensor<f32>, tensor<16x8xf32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<16x8xf32>)
  return
}

// CHECK-LABEL: func.func @optimizer(
// CHECK-SAME:    %[[P:.*]]: tensor<4x8xf32>, %[[S:.*]]: tensor<f32>, %[[V:.*]]: tensor<4xf32>)
func.func @optimizer(%p: tensor<4x8xf32>, %s: tensor<f32>, %v: tensor<4xf32>) {
  // CHECK: lm.scale %[[P]], %[[S]] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %0 = lm.scale %p, %s : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  // CHECK: %[[MAX:.*]] = lm.max_abs %[[P]] : (tensor<4x8xf32>) -> tensor<f32>
  %max = lm.max_abs %p : (tensor<4x8xf32>) -> tensor<f32>
  // CHECK: %[[H:.*]] = lm.scaled_cast %[[P]], %[[MAX]] over 8 : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf16>
  %h = lm.scaled_cast %p, %max over 8 : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf16>
  // CHECK: lm.scaled_cast %[[H]], %[[MAX]] over 8 : (tensor<4x8xf16>, tensor<f32>) -> tensor<4x8xf32>
  %back = lm.scaled_cast %h, %max over 8 : (tensor<4x8xf16>, tensor<f32>) -> tensor<4x8xf32>
  // CHECK: %[[SCALE:.*]] = lm.fp8_scale %[[MAX]] of f8E4M3FN : (tensor<f32>) -> tensor<f32>
  %scale = lm.fp8_scale %max of f8E4M3FN : (tensor<f32>) -> tensor<f32>
  // CHECK: %[[CODES:.*]] = lm.quantize %[[P]], %[[SCALE]] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf8E4M3FN>
  %codes = lm.quantize %p, %scale : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf8E4M3FN>
  // CHECK: %[[FIVE:.*]] = lm.quantize %[[P]], %[[SCALE]] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf8E5M2>
  %five = lm.quantize %p, %scale : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf8E5M2>
  // CHECK: %[[OWN:.*]] = lm.piece_max_abs %[[P]] of %[[S]] : (tensor<4x8xf32>, tensor<f32>) -> tensor<2xf32> {starts = array<i64: 0, 5>}
  %own = lm.piece_max_abs %p of %s : (tensor<4x8xf32>, tensor<f32>) -> tensor<2xf32> {starts = array<i64: 0, 5>}
  // CHECK: lm.ranks_fp8_scale %[[OWN]] of f8E4M3FN : (tensor<2xf32>) -> tensor<1x4xf32>
  %ranks = lm.ranks_fp8_scale %own of f8E4M3FN : (tensor<2xf32>) -> tensor<1x4xf32>
  // CHECK: lm.piece_quantize %[[P]] of %[[S]] scales %[[S]], %[[SCALE]] : (tensor<4x8xf32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<4x8xf8E4M3FN> {starts = array<i64: 0, 5>}
  %piece = lm.piece_quantize %p of %s scales %s, %scale : (tensor<4x8xf32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<4x8xf8E4M3FN> {starts = array<i64: 0, 5>}
  // CHECK: lm.row_scales %[[P]] of f8E4M3FN : (tensor<4x8xf32>) -> tensor<4xbf16>
  %each = lm.row_scales %p of f8E4M3FN : (tensor<4x8xf32>) -> tensor<4xbf16>
  // CHECK: %[[ROWS:.*]], %[[SCALES:.*]] = lm.quantize_whole_rows %[[P]] : (tensor<4x8xf32>) -> (tensor<4x8xf8E4M3FN>, tensor<4xf32>)
  %rows, %scales = lm.quantize_whole_rows %p : (tensor<4x8xf32>) -> (tensor<4x8xf8E4M3FN>, tensor<4xf32>)
  // CHECK: lm.dequantize %[[ROWS]], %[[SCALES]] : (tensor<4x8xf8E4M3FN>, tensor<4xf32>) -> tensor<4x8xbf16>
  %numbers = lm.dequantize %rows, %scales : (tensor<4x8xf8E4M3FN>, tensor<4xf32>) -> tensor<4x8xbf16>
  // CHECK: lm.dequantize %[[CODES]], %[[SCALE]] : (tensor<4x8xf8E4M3FN>, tensor<f32>) -> tensor<4x8xf32>
  %same = lm.dequantize %codes, %scale : (tensor<4x8xf8E4M3FN>, tensor<f32>) -> tensor<4x8xf32>
  // CHECK: %[[SQUARE:.*]] = lm.scaled_matmul %[[CODES]], %[[FIVE]] scales %[[SCALE]], %[[SCALE]] : (tensor<4x8xf8E4M3FN>, tensor<4x8xf8E5M2>, tensor<f32>, tensor<f32>) -> tensor<4x4xf32> {grad_dtype = f8E5M2, transpose_b}
  %square = lm.scaled_matmul %codes, %five scales %scale, %scale : (tensor<4x8xf8E4M3FN>, tensor<4x8xf8E5M2>, tensor<f32>, tensor<f32>) -> tensor<4x4xf32> {transpose_b, grad_dtype = f8E5M2}
  // CHECK: lm.scaled_matmul %[[CODES]], %[[FIVE]] scales %[[SCALE]], %[[SCALE]] acc %[[SQUARE]] bias %[[V]] : (tensor<4x8xf8E4M3FN>, tensor<4x8xf8E5M2>, tensor<f32>, tensor<f32>, tensor<4x4xf32>, tensor<4xf32>) -> tensor<4x4xf32> {transpose_b}
  %added = lm.scaled_matmul %codes, %five scales %scale, %scale acc %square bias %v : (tensor<4x8xf8E4M3FN>, tensor<4x8xf8E5M2>, tensor<f32>, tensor<f32>, tensor<4x4xf32>, tensor<4xf32>) -> tensor<4x4xf32> {transpose_b}
  // CHECK: lm.global_norm %[[P]], %[[V]] : (tensor<4x8xf32>, tensor<4xf32>) -> tensor<f32>
  %1 = lm.global_norm %p, %v : (tensor<4x8xf32>, tensor<4xf32>) -> tensor<f32>
  // CHECK: lm.guard_norm %[[S]], %[[S]] limits %[[S]], %[[S]] : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  %guarded = lm.guard_norm %s, %s limits %s, %s : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  // CHECK: lm.norm_of_parts %[[V]], %[[V]] : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
  %2 = lm.norm_of_parts %v, %v : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
  // CHECK: lm.adamw %[[P]], %[[P]], %[[P]], %[[P]] norm %[[S]] lr %[[S]] betas %[[S]] %[[S]] eps %[[S]] weight_decay %[[S]] bias_corrections %[[S]] %[[S]] clip_grad %[[S]] : ({{.*}}) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x8xbf16>)
  %3:6 = lm.adamw %p, %p, %p, %p norm %s lr %s betas %s %s eps %s weight_decay %s bias_corrections %s %s clip_grad %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4x8xbf16>)
  // CHECK: lm.adamw %[[P]], %[[P]], %[[P]], %[[P]] norm %[[S]] lr %[[S]] betas %[[S]] %[[S]] eps %[[S]] bias_corrections %[[S]] %[[S]] clip_grad %[[S]] : ({{.*}}) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>){{$}}
  %4:5 = lm.adamw %p, %p, %p, %p norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// CHECK-LABEL: func.func @codedMoments(
// CHECK-SAME:    %[[P:.*]]: tensor<8x64xf32>, %[[C:.*]]: tensor<8x64xi8>, %[[X:.*]]: tensor<2xf32>, %[[S:.*]]: tensor<f32>)
func.func @codedMoments(%p: tensor<8x64xf32>, %c: tensor<8x64xi8>, %x: tensor<2xf32>, %s: tensor<f32>) {
  // CHECK: lm.adamw8bit %[[P]], %[[P]], %[[C]] scale %[[X]], %[[C]] scale %[[X]] norm %[[S]] lr %[[S]] betas %[[S]] %[[S]] eps %[[S]] weight_decay %[[S]] bias_corrections %[[S]] %[[S]] clip_grad %[[S]] : ({{.*}}) -> (tensor<8x64xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<8x64xbf16>)
  %0:8 = lm.adamw8bit %p, %p, %c scale %x, %c scale %x norm %s lr %s betas %s %s eps %s weight_decay %s bias_corrections %s %s clip_grad %s : (tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8x64xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<8x64xbf16>)
  // CHECK: lm.adamw8bit {{.*}} eps %[[S]] bias_corrections {{.*}} -> (tensor<8x64xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>){{$}}
  %1:7 = lm.adamw8bit %p, %p, %c scale %x, %c scale %x norm %s lr %s betas %s %s eps %s bias_corrections %s %s clip_grad %s : (tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8x64xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

// CHECK-LABEL: func.func @muon(
// CHECK-SAME:    %[[P:.*]]: tensor<8x16xf32>, %[[S:.*]]: tensor<f32>)
func.func @muon(%p: tensor<8x16xf32>, %s: tensor<f32>) {
  // CHECK: lm.muon %[[P]], %[[P]], %[[P]] norm %[[S]] lr %[[S]] momentum %[[S]] eps %[[S]] weight_decay %[[S]] clip_grad %[[S]] : ({{.*}}) -> (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8x16xbf16>) {adjust_lr_fn = #lm.adjust_lr<match_rms_adamw>, matrices = [#lm.matrix<offset = 0, rows = 6, columns = 16, fan_in = 16>, #lm.matrix<offset = 96, rows = 2, columns = 16, fan_in = 12>], ns_dtype = bf16}
  %0:5 = lm.muon %p, %p, %p norm %s lr %s momentum %s eps %s weight_decay %s clip_grad %s : (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8x16xbf16>) {matrices = [#lm.matrix<offset = 0, rows = 6, columns = 16, fan_in = 16>, #lm.matrix<offset = 96, rows = 2, columns = 16, fan_in = 12>], ns_dtype = bf16, adjust_lr_fn = #lm.adjust_lr<match_rms_adamw>}
  // CHECK: %[[M:.*]], %[[D:.*]] = lm.muon_direction %[[P]], %[[P]] norm %[[S]] momentum %[[S]] clip_grad %[[S]] : ({{.*}}) -> (tensor<8x16xf32>, tensor<8x16xbf16>) {nesterov = true}
  %m, %d = lm.muon_direction %p, %p norm %s momentum %s clip_grad %s : (tensor<8x16xf32>, tensor<8x16xf32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<8x16xf32>, tensor<8x16xbf16>) {nesterov = true}
  // CHECK: %[[O:.*]] = lm.orthogonalize %[[D]] rows 4 eps %[[S]] : (tensor<8x16xbf16>, tensor<f32>) -> tensor<8x16xbf16> {ns_coefficients = array<f64: 3.000000e+00, -4.000000e+00, 2.000000e+00>, ns_steps = 4 : i64}
  %x = lm.orthogonalize %d rows 4 eps %s : (tensor<8x16xbf16>, tensor<f32>) -> tensor<8x16xbf16> {ns_steps = 4 : i64, ns_coefficients = array<f64: 3.0, -4.0, 2.0>}
  // CHECK: %[[W:.*]] = lm.scale_matrices %[[O]] : (tensor<8x16xbf16>) -> tensor<8x16xf32> {adjust_lr_fn = #lm.adjust_lr<spectral_unclamped>, matrices = [#lm.matrix<offset = 0, rows = 8, columns = 16, fan_in = 16>]}
  %o = lm.scale_matrices %x : (tensor<8x16xbf16>) -> tensor<8x16xf32> {matrices = [#lm.matrix<offset = 0, rows = 8, columns = 16, fan_in = 16>], adjust_lr_fn = #lm.adjust_lr<spectral_unclamped>}
  // CHECK: lm.own_rows %[[W]] of %[[S]] : (tensor<8x16xf32>, tensor<f32>) -> tensor<4x16xf32>
  %own = lm.own_rows %o of %s : (tensor<8x16xf32>, tensor<f32>) -> tensor<4x16xf32>
  // CHECK: lm.muon_update %[[P]], %[[W]] norm %[[S]] lr %[[S]] : ({{.*}}) -> (tensor<8x16xf32>, tensor<8xf32>, tensor<8xf32>)
  %1:3 = lm.muon_update %p, %o norm %s lr %s : (tensor<8x16xf32>, tensor<8x16xf32>, tensor<f32>, tensor<f32>) -> (tensor<8x16xf32>, tensor<8xf32>, tensor<8xf32>)
  return
}

// CHECK-LABEL: func.func @columns(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32>)
func.func @columns(%x: tensor<4x8xf32>) {
  // CHECK: %[[S:.*]]:2 = lm.split %[[X]] : (tensor<4x8xf32>) -> (tensor<4x3xf32>, tensor<4x5xf32>)
  %0:2 = lm.split %x : (tensor<4x8xf32>) -> (tensor<4x3xf32>, tensor<4x5xf32>)
  // CHECK: lm.join %[[S]]#1, %[[S]]#0 : (tensor<4x5xf32>, tensor<4x3xf32>) -> tensor<4x8xf32>
  %1 = lm.join %0#1, %0#0 : (tensor<4x5xf32>, tensor<4x3xf32>) -> tensor<4x8xf32>
  return
}

// CHECK-LABEL: func.func @experts(
// CHECK-SAME:    %[[L:.*]]: tensor<4x3xbf16>, %[[X:.*]]: tensor<4x8xbf16>, %[[W:.*]]: tensor<18x8xbf16>, %[[A:.*]]: tensor<18x8xf32>, %[[S:.*]]: tensor<f32>)
func.func @experts(%logits: tensor<4x3xbf16>, %x: tensor<4x8xbf16>, %w: tensor<18x8xbf16>, %acc: tensor<18x8xf32>, %loss: tensor<f32>) {
  // CHECK: %[[P:.*]], %[[E:.*]], %[[C:.*]], %[[M:.*]] = lm.route %[[L]] : (tensor<4x3xbf16>) -> (tensor<4x2xf32>, tensor<4x2xi32>, tensor<3xf32>, tensor<3xf32>) {normalize}
  %p, %e, %c, %m = lm.route %logits : (tensor<4x3xbf16>) -> (tensor<4x2xf32>, tensor<4x2xi32>, tensor<3xf32>, tensor<3xf32>) {normalize}
  // CHECK: lm.route %[[L]] bias %[[C]] : ({{.*}}) -> (tensor<4x2xf32>, tensor<4x2xi32>, tensor<3xf32>, tensor<3xf32>) {scale = 2.500000e+00 : f64, sigmoid}
  %sp, %se, %sc, %sm = lm.route %logits bias %c : (tensor<4x3xbf16>, tensor<3xf32>) -> (tensor<4x2xf32>, tensor<4x2xi32>, tensor<3xf32>, tensor<3xf32>) {scale = 2.5 : f64, sigmoid}
  // CHECK: lm.balance_bias %[[C]], %{{.*}} norm %[[S]] speed %[[S]] balanced 2.500000e+00 : ({{.*}}) -> (tensor<3xf32>, tensor<1xf32>, tensor<1xf32>)
  %nb, %us, %ps = lm.balance_bias %c, %sc norm %loss speed %loss balanced 2.5 : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<f32>) -> (tensor<3xf32>, tensor<1xf32>, tensor<1xf32>)
  // CHECK: lm.route_grad %[[L]], %[[E]], %[[P]] mass %[[M]] : ({{.*}}) -> tensor<4x3xbf16> {normalize}
  %0 = lm.route_grad %logits, %e, %p mass %m : (tensor<4x3xbf16>, tensor<4x2xi32>, tensor<4x2xf32>, tensor<3xf32>) -> tensor<4x3xbf16> {normalize}
  // CHECK: %[[O:.*]], %[[R:.*]], %[[Q:.*]] = lm.sort_rows %[[E]] : (tensor<4x2xi32>) -> (tensor<4xi32>, tensor<8xi32>, tensor<8xi32>)
  %o, %r, %q = lm.sort_rows %e : (tensor<4x2xi32>) -> (tensor<4xi32>, tensor<8xi32>, tensor<8xi32>)
  // CHECK: %{{.*}}, %[[RG:.*]], %[[QG:.*]] = lm.sort_rows %[[E]] of %[[S]] : (tensor<4x2xi32>, tensor<f32>) -> (tensor<2xi32>, tensor<3xi32>, tensor<8xi32>) {first = 2 : i64, groups = 3 : i64}
  %og, %rg, %qg = lm.sort_rows %e of %loss : (tensor<4x2xi32>, tensor<f32>) -> (tensor<2xi32>, tensor<3xi32>, tensor<8xi32>) {first = 2 : i64, groups = 3 : i64}
  // CHECK: lm.take_rows %[[X]], %[[RG]], %[[QG]] : ({{.*}}) -> tensor<3x8xbf16>
  %tg = lm.take_rows %x, %rg, %qg : (tensor<4x8xbf16>, tensor<3xi32>, tensor<8xi32>) -> tensor<3x8xbf16>
  // CHECK: %[[T:.*]] = lm.take_rows %[[X]], %[[R]], %[[Q]] : ({{.*}}) -> tensor<8x8xbf16>
  %t = lm.take_rows %x, %r, %q : (tensor<4x8xbf16>, tensor<8xi32>, tensor<8xi32>) -> tensor<8x8xbf16>
  // CHECK: lm.take_rows_grad %[[T]], %[[Q]] : ({{.*}}) -> tensor<4x8xbf16>
  %1 = lm.take_rows_grad %t, %q : (tensor<8x8xbf16>, tensor<8xi32>) -> tensor<4x8xbf16>
  // CHECK: %[[Y:.*]] = lm.expert_linear %[[T]], %[[W]], %[[O]] : ({{.*}}) -> tensor<8x6xbf16>
  %y = lm.expert_linear %t, %w, %o : (tensor<8x8xbf16>, tensor<18x8xbf16>, tensor<4xi32>) -> tensor<8x6xbf16>
  // CHECK: lm.expert_linear %[[Y]], %[[W]], %[[O]] : ({{.*}}) -> tensor<8x8xbf16> {transposed}
  %2 = lm.expert_linear %y, %w, %o : (tensor<8x6xbf16>, tensor<18x8xbf16>, tensor<4xi32>) -> tensor<8x8xbf16> {transposed}
  // CHECK: lm.expert_linear_grad %[[Y]], %[[T]], %[[O]] acc %[[A]] : ({{.*}}) -> tensor<18x8xf32>
  %3 = lm.expert_linear_grad %y, %t, %o acc %acc : (tensor<8x6xbf16>, tensor<8x8xbf16>, tensor<4xi32>, tensor<18x8xf32>) -> tensor<18x8xf32>
  // CHECK: %[[GU:.*]], %{{.*}} = lm.linear_swiglu %[[T]], %[[W]] : (tensor<8x8xbf16>, tensor<18x8xbf16>) -> (tensor<8x18xbf16>, tensor<8x9xbf16>)
  %gu, %a = lm.linear_swiglu %t, %w : (tensor<8x8xbf16>, tensor<18x8xbf16>) -> (tensor<8x18xbf16>, tensor<8x9xbf16>)
  // CHECK: lm.linear_swiglu {{.*}} {both}
  %gu2, %a2 = lm.linear_swiglu %t, %w : (tensor<8x8xbf16>, tensor<18x8xbf16>) -> (tensor<8x18xbf16>, tensor<8x9xbf16>) {both}
  // CHECK: lm.swiglu_linear_grad %[[T]], %{{.*}}, %[[GU]] : ({{.*}}) -> (tensor<8x18xbf16>, tensor<8x9xbf16>) {both}
  %dgu, %a3 = lm.swiglu_linear_grad %t, %a, %gu : (tensor<8x8xbf16>, tensor<8x9xbf16>, tensor<8x18xbf16>) -> (tensor<8x18xbf16>, tensor<8x9xbf16>) {both}
  // CHECK: %[[SW:.*]] = lm.expert_swiglu %[[Y]], %[[O]] : (tensor<8x6xbf16>, tensor<4xi32>) -> tensor<8x3xbf16>
  %sw = lm.expert_swiglu %y, %o : (tensor<8x6xbf16>, tensor<4xi32>) -> tensor<8x3xbf16>
  // CHECK: lm.expert_swiglu_grad %[[SW]], %[[Y]], %[[O]] : ({{.*}}) -> tensor<8x6xbf16>
  %dsw = lm.expert_swiglu_grad %sw, %y, %o : (tensor<8x3xbf16>, tensor<8x6xbf16>, tensor<4xi32>) -> tensor<8x6xbf16>
  // CHECK: %[[D:.*]] = lm.combine_rows %[[T]], %[[P]], %[[R]], %[[Q]] : ({{.*}}) -> tensor<4x8xbf16>
  %d = lm.combine_rows %t, %p, %r, %q : (tensor<8x8xbf16>, tensor<4x2xf32>, tensor<8xi32>, tensor<8xi32>) -> tensor<4x8xbf16>
  // CHECK: lm.combine_rows_grad %[[D]], %[[T]], %[[P]], %[[R]], %[[Q]] : ({{.*}}) -> (tensor<8x8xbf16>, tensor<4x2xf32>)
  %4:2 = lm.combine_rows_grad %d, %t, %p, %r, %q : (tensor<4x8xbf16>, tensor<8x8xbf16>, tensor<4x2xf32>, tensor<8xi32>, tensor<8xi32>) -> (tensor<8x8xbf16>, tensor<4x2xf32>)
  // CHECK: lm.balance_loss %[[S]], %[[C]], %[[M]] factor 5.000000e-01 : ({{.*}}) -> tensor<f32>
  %5 = lm.balance_loss %loss, %c, %m factor 5.0e-1 : (tensor<f32>, tensor<3xf32>, tensor<3xf32>) -> tensor<f32>
  // CHECK: lm.balance_loss_grad %[[S]], %[[C]] factor 5.000000e-01 : ({{.*}}) -> tensor<3xf32>
  %6 = lm.balance_loss_grad %loss, %c factor 5.0e-1 : (tensor<f32>, tensor<3xf32>) -> tensor<3xf32>
  // CHECK: lm.balance_terms %[[C]], %[[M]] factor 5.000000e-01 : tensor<3xf32>
  %7 = lm.balance_terms %c, %m factor 5.0e-1 : tensor<3xf32>
  // CHECK: lm.late_rows %[[O]], %{{.*}} : (tensor<4xi32>, tensor<2xi32>) -> tensor<1xf32>
  %late = lm.late_rows %o, %og : (tensor<4xi32>, tensor<2xi32>) -> tensor<1xf32>
  // CHECK: lm.router_entropy %[[L]] : (tensor<4x3xbf16>) -> tensor<3xf32>
  %8 = lm.router_entropy %logits : (tensor<4x3xbf16>) -> tensor<3xf32>
  return
}
