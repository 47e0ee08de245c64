// lm-transpose-codes: rows of both factors of a product run along the dimension that is summed over.
// RUN: lmc-opt %s --split-input-file --lm-transpose-codes --verify-diagnostics | FileCheck %s
// RUN: lmc-opt %s --split-input-file --lm-transpose-codes --lm-keep-codes --verify-diagnostics | FileCheck %s --check-prefix=KEEP

lm.variable @w parameter : tensor<32x16xf32> init zeros
lm.variable @x input : tensor<48x16xf32> init none
lm.variable @y input : tensor<48x32xf32> init none
lm.variable @dx input : tensor<48x16xf32> init none
lm.variable @dw input : tensor<32x16xf32> init none

// A product whose factors lie right stays.
// CHECK-LABEL: func.func private @layer(
// CHECK-NOT:     lm.transpose
// CHECK:         lm.scaled_matmul %{{.*}}, %{{.*}} scales {{.*}} -> tensor<48x32xf32> {transpose_b}
func.func private @layer(%x: tensor<48x16xf8E4M3FN>, %s: tensor<f32>, %w: tensor<32x16xf8E4M3FN>) -> tensor<48x32xf32> {
  %y = lm.scaled_matmul %x, %w scales %s, %s : (tensor<48x16xf8E4M3FN>, tensor<32x16xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<48x32xf32> {transpose_b}
  return %y : tensor<48x32xf32>
}

// The weight comes transposed; its own codes are read no more. Other codes are transposed here, each once.
// CHECK-LABEL: func.func private @layer.backward(
// CHECK-SAME:    %[[DY:[^:]*]]: tensor<48x32xf8E5M2>, %[[S:[^:]*]]: tensor<f32>, %[[X:[^:]*]]: tensor<48x16xf8E4M3FN>, %[[WT:[^:]*]]: tensor<16x32xf8E4M3FN>)
// CHECK-NEXT:    %[[DX:.*]] = lm.scaled_matmul %[[DY]], %[[WT]] scales {{.*}} -> tensor<48x16xf32> {transpose_b}
// CHECK-NEXT:    %[[DYT:.*]] = lm.transpose %[[DY]] : (tensor<48x32xf8E5M2>) -> tensor<32x48xf8E5M2>
// CHECK-NEXT:    %[[XT:.*]] = lm.transpose %[[X]] : (tensor<48x16xf8E4M3FN>) -> tensor<16x48xf8E4M3FN>
// CHECK-NEXT:    %[[DW:.*]] = lm.scaled_matmul %[[DYT]], %[[XT]] scales {{.*}} -> tensor<32x16xf32> {transpose_b}
// CHECK-NEXT:    %[[AGAIN:.*]] = lm.scaled_matmul %[[DYT]], %[[XT]] scales {{.*}} acc %[[DW]] {{.*}} -> tensor<32x16xf32> {transpose_b}
// CHECK-NEXT:    return %[[DX]], %[[AGAIN]]
func.func private @layer.backward(%dy: tensor<48x32xf8E5M2>, %s: tensor<f32>, %x: tensor<48x16xf8E4M3FN>, %w: tensor<32x16xf8E4M3FN>) -> (tensor<48x16xf32>, tensor<32x16xf32>) {
  %dx = lm.scaled_matmul %dy, %w scales %s, %s : (tensor<48x32xf8E5M2>, tensor<32x16xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<48x16xf32>
  %dw = lm.scaled_matmul %dy, %x scales %s, %s : (tensor<48x32xf8E5M2>, tensor<48x16xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<32x16xf32> {transpose_a}
  %again = lm.scaled_matmul %dy, %x scales %s, %s acc %dw : (tensor<48x32xf8E5M2>, tensor<48x16xf8E4M3FN>, tensor<f32>, tensor<f32>, tensor<32x16xf32>) -> tensor<32x16xf32> {transpose_a}
  return %dx, %again : tensor<48x16xf32>, tensor<32x16xf32>
}

// CHECK-LABEL: func.func @micro_first
// CHECK:         %[[W:.*]] = lm.quantize
// CHECK-NEXT:    %[[WT:.*]] = lm.transpose %[[W]] : (tensor<32x16xf8E4M3FN>) -> tensor<16x32xf8E4M3FN>
// CHECK:         call @layer({{.*}}, %[[W]]) :
// CHECK:         call @layer.backward({{.*}}, %[[WT]]) :
// KEEP-LABEL:  func.func @micro_first
// KEEP-DAG:      %[[WT:.*]] = lm.transpose %
// KEEP-DAG:      lm.store %[[WT]], @w.transposed
func.func @micro_first() {
  %w = lm.load @w : tensor<32x16xf32>
  %max = lm.max_abs %w : (tensor<32x16xf32>) -> tensor<f32>
  %scale = lm.fp8_scale %max of f8E4M3FN : (tensor<f32>) -> tensor<f32>
  %codes = lm.quantize %w, %scale : (tensor<32x16xf32>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
  %x = lm.load @x : tensor<48x16xf32>
  %cx = lm.quantize %x, %scale : (tensor<48x16xf32>, tensor<f32>) -> tensor<48x16xf8E4M3FN>
  %y = func.call @layer(%cx, %scale, %codes) : (tensor<48x16xf8E4M3FN>, tensor<f32>, tensor<32x16xf8E4M3FN>) -> tensor<48x32xf32>
  %cy = lm.quantize %y, %scale : (tensor<48x32xf32>, tensor<f32>) -> tensor<48x32xf8E5M2>
  %x2 = func.call @activation() : () -> tensor<48x16xf8E4M3FN>
  %dx, %dw = func.call @layer.backward(%cy, %scale, %x2, %codes) : (tensor<48x32xf8E5M2>, tensor<f32>, tensor<48x16xf8E4M3FN>, tensor<32x16xf8E4M3FN>) -> (tensor<48x16xf32>, tensor<32x16xf32>)
  lm.store %dx, @dx : tensor<48x16xf32>
  lm.store %dw, @dw : tensor<32x16xf32>
  return
}

// The later micro-steps load what the first one made.
// KEEP-LABEL:  func.func @micro_last
// KEEP-NOT:      lm.transpose
// KEEP:          %[[WT:.*]] = lm.load @w.transposed : tensor<16x32xf8E4M3FN>
// KEEP:          call @layer.backward({{.*}}, %[[WT]]) :
func.func @micro_last() {
  %w = lm.load @w : tensor<32x16xf32>
  %max = lm.max_abs %w : (tensor<32x16xf32>) -> tensor<f32>
  %scale = lm.fp8_scale %max of f8E4M3FN : (tensor<f32>) -> tensor<f32>
  %codes = lm.quantize %w, %scale : (tensor<32x16xf32>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
  %dy = func.call @gradient() : () -> tensor<48x32xf8E5M2>
  %x2 = func.call @activation() : () -> tensor<48x16xf8E4M3FN>
  %dx, %dw = func.call @layer.backward(%dy, %scale, %x2, %codes) : (tensor<48x32xf8E5M2>, tensor<f32>, tensor<48x16xf8E4M3FN>, tensor<32x16xf8E4M3FN>) -> (tensor<48x16xf32>, tensor<32x16xf32>)
  lm.store %dx, @dx : tensor<48x16xf32>
  lm.store %dw, @dw : tensor<32x16xf32>
  return
}

func.func private @activation() -> tensor<48x16xf8E4M3FN>
func.func private @gradient() -> tensor<48x32xf8E5M2>

// -----

// Tensor cores read rows of 16 bytes.
func.func private @odd(%dy: tensor<40x32xf8E5M2>, %s: tensor<f32>, %x: tensor<40x16xf8E4M3FN>) -> tensor<32x16xf32> {
  // expected-error @below {{has a factor 'tensor<40x32xf8E5M2>', and tensor cores need multiples of 16; change training.micro_batch_size}}
  %dw = lm.scaled_matmul %dy, %x scales %s, %s : (tensor<40x32xf8E5M2>, tensor<40x16xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<32x16xf32> {transpose_a}
  return %dw : tensor<32x16xf32>
}

// -----

// The codes of a weight and its scales of tiles are transposed.
lm.variable @t parameter : tensor<256x128xf32> init zeros
lm.variable @dt input : tensor<128x128xf32> init none
// CHECK-LABEL: func.func private @tiles.backward(
// CHECK-SAME:    %[[DY:[^:]*]]: tensor<128x256xf8E4M3FN>, %[[S:[^:]*]]: tensor<2x128xf32>, %[[T:[^:]*]]: tensor<128x256xf8E4M3FN>, %[[ST:[^:]*]]: tensor<1x4xf32>)
// CHECK-NEXT:    lm.scaled_matmul %[[DY]], %[[T]] scales %[[S]], %[[ST]] : {{.*}} -> tensor<128x128xf32> {tiles, transpose_b}
func.func private @tiles.backward(%dy: tensor<128x256xf8E4M3FN>, %s: tensor<2x128xf32>, %t: tensor<256x128xf8E4M3FN>, %st: tensor<2x4xf32>) -> tensor<128x128xf32> {
  %dx = lm.scaled_matmul %dy, %t scales %s, %st : (tensor<128x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>, tensor<2x128xf32>, tensor<2x4xf32>) -> tensor<128x128xf32> {tiles}
  return %dx : tensor<128x128xf32>
}
// CHECK-LABEL: func.func @micro_first
// CHECK:         %[[C:.*]], %[[S:.*]] = lm.quantize_tiles
// CHECK-DAG:     %[[T:.*]] = lm.transpose %[[C]] : (tensor<256x128xf8E4M3FN>) -> tensor<128x256xf8E4M3FN>
// CHECK-DAG:     %[[ST:.*]] = lm.transpose_scales %[[S]] : (tensor<2x4xf32>) -> tensor<1x4xf32>
// CHECK:         call @tiles.backward(%{{.*}}, %{{.*}}, %[[T]], %[[ST]])
// KEEP-LABEL:  func.func @micro_first
// KEEP-DAG:      lm.store %{{.*}}, @t.transposed : tensor<128x256xf8E4M3FN>
// KEEP-DAG:      lm.store %{{.*}}, @t.transposed_scale : tensor<1x4xf32>
func.func @micro_first() {
  %w = lm.load @t : tensor<256x128xf32>
  %t, %st = lm.quantize_tiles %w : (tensor<256x128xf32>) -> (tensor<256x128xf8E4M3FN>, tensor<2x4xf32>)
  %dy, %s = func.call @gradient() : () -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)
  %dx = func.call @tiles.backward(%dy, %s, %t, %st) : (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<256x128xf8E4M3FN>, tensor<2x4xf32>) -> tensor<128x128xf32>
  lm.store %dx, @dt : tensor<128x128xf32>
  return
}
// KEEP-LABEL:  func.func @micro_last
// KEEP-NOT:      lm.quantize_tiles
// KEEP-NOT:      lm.transpose
// KEEP-DAG:      lm.load @t.transposed :
// KEEP-DAG:      lm.load @t.transposed_scale
func.func @micro_last() {
  %w = lm.load @t : tensor<256x128xf32>
  %t, %st = lm.quantize_tiles %w : (tensor<256x128xf32>) -> (tensor<256x128xf8E4M3FN>, tensor<2x4xf32>)
  %dy, %s = func.call @gradient() : () -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)
  %dx = func.call @tiles.backward(%dy, %s, %t, %st) : (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<256x128xf8E4M3FN>, tensor<2x4xf32>) -> tensor<128x128xf32>
  lm.store %dx, @dt : tensor<128x128xf32>
  return
}
func.func private @gradient() -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)

// -----

// Ranks that exchange codes load them, and the scales: both are transposed, once a step.
lm.variable @t.compute compute_copy : tensor<256x128xf8E4M3FN> init none
lm.variable @t.scales compute_copy : tensor<2x4xf32> init none
lm.variable @dt input : tensor<128x128xf32> init none
// CHECK-LABEL: func.func private @exchanged.backward(
// CHECK-SAME:    %[[DY:[^:]*]]: tensor<128x256xf8E4M3FN>, %[[S:[^:]*]]: tensor<2x128xf32>, %[[T:[^:]*]]: tensor<128x256xf8E4M3FN>, %[[ST:[^:]*]]: tensor<1x4xf32>)
// CHECK-NEXT:    lm.scaled_matmul %[[DY]], %[[T]] scales %[[S]], %[[ST]] : {{.*}} -> tensor<128x128xf32> {tiles, transpose_b}
func.func private @exchanged.backward(%dy: tensor<128x256xf8E4M3FN>, %s: tensor<2x128xf32>, %t: tensor<256x128xf8E4M3FN>, %st: tensor<2x4xf32>) -> tensor<128x128xf32> {
  %dx = lm.scaled_matmul %dy, %t scales %s, %st : (tensor<128x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>, tensor<2x128xf32>, tensor<2x4xf32>) -> tensor<128x128xf32> {tiles}
  return %dx : tensor<128x128xf32>
}
// CHECK-LABEL: func.func @micro_first
// CHECK-DAG:     %[[T:.*]] = lm.transpose %{{.*}} : (tensor<256x128xf8E4M3FN>) -> tensor<128x256xf8E4M3FN>
// CHECK-DAG:     %[[ST:.*]] = lm.transpose_scales %{{.*}} : (tensor<2x4xf32>) -> tensor<1x4xf32>
// CHECK:         call @exchanged.backward(%{{.*}}, %{{.*}}, %[[T]], %[[ST]])
// KEEP-LABEL:  func.func @micro_first
// KEEP-DAG:      lm.store %{{.*}}, @t.compute.transposed : tensor<128x256xf8E4M3FN>
// KEEP-DAG:      lm.store %{{.*}}, @t.scales.transposed : tensor<1x4xf32>
func.func @micro_first() {
  %t = lm.load @t.compute : tensor<256x128xf8E4M3FN>
  %st = lm.load @t.scales : tensor<2x4xf32>
  %dy, %s = func.call @gradient() : () -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)
  %dx = func.call @exchanged.backward(%dy, %s, %t, %st) : (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<256x128xf8E4M3FN>, tensor<2x4xf32>) -> tensor<128x128xf32>
  lm.store %dx, @dt : tensor<128x128xf32>
  return
}
// KEEP-LABEL:  func.func @micro_last
// KEEP-NOT:      lm.transpose
// KEEP-DAG:      lm.load @t.compute.transposed
// KEEP-DAG:      lm.load @t.scales.transposed
func.func @micro_last() {
  %t = lm.load @t.compute : tensor<256x128xf8E4M3FN>
  %st = lm.load @t.scales : tensor<2x4xf32>
  %dy, %s = func.call @gradient() : () -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)
  %dx = func.call @exchanged.backward(%dy, %s, %t, %st) : (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<256x128xf8E4M3FN>, tensor<2x4xf32>) -> tensor<128x128xf32>
  lm.store %dx, @dt : tensor<128x128xf32>
  return
}
func.func private @gradient() -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)

// -----

// What a rank gathers in each micro-step is transposed before the product.
lm.variable @u.codes compute_copy : tensor<128x256xf8E4M3FN> init none
lm.variable @u.scales compute_copy : tensor<2x4xf32> init none
lm.variable @dt input : tensor<128x128xf32> init none
// CHECK-LABEL: func.func private @gathered.backward(
// CHECK-SAME:    %[[T:[^:]*]]: tensor<256x128xf8E4M3FN>, %[[ST:[^:]*]]: tensor<2x4xf32>)
// CHECK-NEXT:    %[[TT:.*]] = lm.transpose %[[T]]
// CHECK-NEXT:    %[[STT:.*]] = lm.transpose_scales %[[ST]]
// CHECK-NEXT:    lm.scaled_matmul %{{.*}}, %[[TT]] scales %{{.*}}, %[[STT]] : {{.*}} -> tensor<128x128xf32> {tiles, transpose_b}
func.func private @gathered.backward(%dy: tensor<128x256xf8E4M3FN>, %s: tensor<2x128xf32>, %t: tensor<256x128xf8E4M3FN>, %st: tensor<2x4xf32>) -> tensor<128x128xf32> {
  %dx = lm.scaled_matmul %dy, %t scales %s, %st : (tensor<128x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>, tensor<2x128xf32>, tensor<2x4xf32>) -> tensor<128x128xf32> {tiles}
  return %dx : tensor<128x128xf32>
}
func.func @micro() {
  %u = lm.load @u.codes : tensor<128x256xf8E4M3FN>
  %flat = tensor.collapse_shape %u [[0, 1]] : tensor<128x256xf8E4M3FN> into tensor<32768xf8E4M3FN>
  %t = tensor.expand_shape %flat [[0, 1]] output_shape [256, 128] : tensor<32768xf8E4M3FN> into tensor<256x128xf8E4M3FN>
  %st = lm.load @u.scales : tensor<2x4xf32>
  %dy, %s = func.call @gradient() : () -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)
  %dx = func.call @gathered.backward(%dy, %s, %t, %st) : (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<256x128xf8E4M3FN>, tensor<2x4xf32>) -> tensor<128x128xf32>
  lm.store %dx, @dt : tensor<128x128xf32>
  return
}
func.func private @gradient() -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)

// -----

// So are the weights of experts, whose transposes lie one beside the other.
lm.variable @e parameter : tensor<384x256xf32> init zeros
lm.variable @dx input : tensor<40x256xf32> init none
// CHECK-LABEL: func.func private @experts.backward(
// CHECK-SAME:    %[[DY:[^:]*]]: tensor<40x128xf8E4M3FN>, %[[S:[^:]*]]: tensor<1x40xf32>, %[[O:[^:]*]]: tensor<4xi32>, %[[T:[^:]*]]: tensor<256x384xf8E4M3FN>, %[[ST:[^:]*]]: tensor<2x3xf32>)
// CHECK-NEXT:    lm.expert_scaled_linear %[[DY]], %[[T]], %[[O]] scales %[[S]], %[[ST]] : {{.*}} -> tensor<40x256xf32> {beside}
func.func private @experts.backward(%dy: tensor<40x128xf8E4M3FN>, %s: tensor<1x40xf32>, %o: tensor<4xi32>, %w: tensor<384x256xf8E4M3FN>, %t: tensor<3x2xf32>) -> tensor<40x256xf32> {
  %dx = lm.expert_scaled_linear %dy, %w, %o scales %s, %t : (tensor<40x128xf8E4M3FN>, tensor<384x256xf8E4M3FN>, tensor<4xi32>, tensor<1x40xf32>, tensor<3x2xf32>) -> tensor<40x256xf32> {transposed}
  return %dx : tensor<40x256xf32>
}
// CHECK-LABEL: func.func @micro_first
// CHECK:         lm.quantize_tiles
// CHECK-DAG:     lm.transpose %{{.*}} : (tensor<384x256xf8E4M3FN>) -> tensor<256x384xf8E4M3FN>
// CHECK-DAG:     lm.transpose_scales %{{.*}} : (tensor<3x2xf32>) -> tensor<2x3xf32>
func.func @micro_first() {
  %w = lm.load @e : tensor<384x256xf32>
  %c, %t = lm.quantize_tiles %w : (tensor<384x256xf32>) -> (tensor<384x256xf8E4M3FN>, tensor<3x2xf32>)
  %dy, %s, %o = func.call @gradient() : () -> (tensor<40x128xf8E4M3FN>, tensor<1x40xf32>, tensor<4xi32>)
  %dx = func.call @experts.backward(%dy, %s, %o, %c, %t) : (tensor<40x128xf8E4M3FN>, tensor<1x40xf32>, tensor<4xi32>, tensor<384x256xf8E4M3FN>, tensor<3x2xf32>) -> tensor<40x256xf32>
  lm.store %dx, @dx : tensor<40x256xf32>
  return
}
func.func private @gradient() -> (tensor<40x128xf8E4M3FN>, tensor<1x40xf32>, tensor<4xi32>)

// -----

// Codes that a forward half keeps are transposed there, if the backward half reads only the transpose.
lm.variable @w parameter : tensor<32x16xf32> init zeros
lm.variable @dw input : tensor<32x16xf32> init none
lm.variable @y input : tensor<48x16xf32> init none
// CHECK-LABEL: func.func private @kept.forward(
// CHECK:         %[[C:.*]] = lm.quantize %[[X:.*]], %{{.*}} : (tensor<48x16xf32>, tensor<f32>) -> tensor<48x16xf8E4M3FN>
// CHECK-NEXT:    %[[T:.*]] = lm.transpose %[[C]] : (tensor<48x16xf8E4M3FN>) -> tensor<16x48xf8E4M3FN>
// CHECK-NEXT:    %[[READ:.*]] = lm.quantize %[[X]]
// CHECK-NEXT:    return %[[X]], %[[T]], %[[READ]]
func.func private @kept.forward(%x: tensor<48x16xf32>, %s: tensor<f32>, %s2: tensor<f32>) -> (tensor<48x16xf32>, tensor<48x16xf8E4M3FN>, tensor<48x16xf8E4M3FN>) {
  %c = lm.quantize %x, %s : (tensor<48x16xf32>, tensor<f32>) -> tensor<48x16xf8E4M3FN>
  %read = lm.quantize %x, %s2 : (tensor<48x16xf32>, tensor<f32>) -> tensor<48x16xf8E4M3FN>
  return %x, %c, %read : tensor<48x16xf32>, tensor<48x16xf8E4M3FN>, tensor<48x16xf8E4M3FN>
}
// CHECK-LABEL: func.func private @kept.backward(
// CHECK-SAME:    %[[DY:[^:]*]]: tensor<48x32xf8E5M2>, %[[S:[^:]*]]: tensor<f32>, %[[T:[^:]*]]: tensor<16x48xf8E4M3FN>, %[[READ:[^:]*]]: tensor<48x16xf8E4M3FN>)
// CHECK-NEXT:    %[[DYT:.*]] = lm.transpose %[[DY]]
// CHECK-NEXT:    %[[DW:.*]] = lm.scaled_matmul %[[DYT]], %[[T]] scales {{.*}} {transpose_b}
// CHECK-NEXT:    %[[RT:.*]] = lm.transpose %[[READ]]
// CHECK-NEXT:    lm.scaled_matmul %[[DYT]], %[[RT]] scales {{.*}} acc %[[DW]] {{.*}} {transpose_b}
// CHECK-NEXT:    lm.dequantize %[[READ]]
func.func private @kept.backward(%dy: tensor<48x32xf8E5M2>, %s: tensor<f32>, %c: tensor<48x16xf8E4M3FN>, %read: tensor<48x16xf8E4M3FN>) -> (tensor<32x16xf32>, tensor<48x16xf32>) {
  %dw = lm.scaled_matmul %dy, %c scales %s, %s : (tensor<48x32xf8E5M2>, tensor<48x16xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<32x16xf32> {transpose_a}
  %dw2 = lm.scaled_matmul %dy, %read scales %s, %s acc %dw : (tensor<48x32xf8E5M2>, tensor<48x16xf8E4M3FN>, tensor<f32>, tensor<f32>, tensor<32x16xf32>) -> tensor<32x16xf32> {transpose_a}
  %x = lm.dequantize %read, %s : (tensor<48x16xf8E4M3FN>, tensor<f32>) -> tensor<48x16xf32>
  return %dw2, %x : tensor<32x16xf32>, tensor<48x16xf32>
}
// CHECK-LABEL: func.func @micro
// CHECK:         %[[F:.*]]:3 = call @kept.forward(%{{.*}}, %{{.*}}, %{{.*}}) : {{.*}} -> (tensor<48x16xf32>, tensor<16x48xf8E4M3FN>, tensor<48x16xf8E4M3FN>)
// CHECK:         call @kept.backward(%{{.*}}, %{{.*}}, %[[F]]#1, %[[F]]#2)
func.func @micro() {
  %x = lm.load @y : tensor<48x16xf32>
  %max = lm.max_abs %x : (tensor<48x16xf32>) -> tensor<f32>
  %s = lm.fp8_scale %max of f8E4M3FN : (tensor<f32>) -> tensor<f32>
  %y, %c, %read = func.call @kept.forward(%x, %s, %max) : (tensor<48x16xf32>, tensor<f32>, tensor<f32>) -> (tensor<48x16xf32>, tensor<48x16xf8E4M3FN>, tensor<48x16xf8E4M3FN>)
  %dy = func.call @gradient() : () -> tensor<48x32xf8E5M2>
  %dw, %dx = func.call @kept.backward(%dy, %s, %c, %read) : (tensor<48x32xf8E5M2>, tensor<f32>, tensor<48x16xf8E4M3FN>, tensor<48x16xf8E4M3FN>) -> (tensor<32x16xf32>, tensor<48x16xf32>)
  lm.store %dw, @dw : tensor<32x16xf32>
  lm.store %dx, @y : tensor<48x16xf32>
  return
}
func.func private @gradient() -> tensor<48x32xf8E5M2>
