// lm-quantize-linears with blocks: scales of 128 elements of a row, of a column for the gradient of a weight, and of tiles of a weight.
// RUN: lmc-opt %s --split-input-file --lm-quantize-linears=blocks --verify-diagnostics | FileCheck %s
// RUN: lmc-opt %s --split-input-file --lm-quantize-linears=blocks --lm-autodiff --verify-diagnostics | FileCheck %s --check-prefix=GRAD

lm.variable @loss scalar : tensor<f32> init none
lm.variable @x input : tensor<128x256xbf16> init none
lm.variable @w parameter : tensor<384x256xf32> init normal(stddev = 0.02 : f64)
lm.variable @w.compute compute_copy : tensor<384x256xbf16> init copy_of(source = "w") {parameter = "w"}

// CHECK-LABEL: func.func private @layer(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<128x256xbf16>, %[[W:[a-z0-9]+]]: tensor<384x256xf8E4M3FN>, %[[S:[a-z0-9]+]]: tensor<3x4xf32>)
// CHECK-NEXT:    %[[C:.*]], %[[SX:.*]] = lm.quantize_rows %[[X]] : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)
// CHECK-NEXT:    lm.scaled_matmul %[[C]], %[[W]] scales %[[SX]], %[[S]] : {{.*}} -> tensor<128x384xbf16> {grad_dtype = f8E4M3FN, tiles, transpose_b}
// CHECK:       func.func @forward
// CHECK:         lm.quantize_tiles %{{.*}} : (tensor<384x256xbf16>) -> (tensor<384x256xf8E4M3FN>, tensor<3x4xf32>)

// The gradient of x sums over rows of dy, that of the weight over columns of dy and x. The forward pass can cast rows and columns
// of x at once.
// GRAD-LABEL: func.func private @layer.forward(
// GRAD-SAME:    %[[X:[a-z0-9]+]]: tensor<128x256xbf16>
// GRAD-NEXT:    lm.quantize_rows %[[X]]
// GRAD-NEXT:    %[[CX:.*]], %[[SCX:.*]] = lm.quantize_columns %[[X]] : (tensor<128x256xbf16>) -> (tensor<256x128xf8E4M3FN>, tensor<1x256xf32>)
// GRAD-NEXT:    %[[Y:.*]] = lm.scaled_matmul
// GRAD-NEXT:    return %[[Y]], %[[CX]], %[[SCX]]
// GRAD-LABEL: func.func private @layer.backward(
// GRAD-SAME:    %{{[a-z0-9]+}}: tensor<128x384xbf16>, %[[CX:[a-z0-9]+]]: tensor<256x128xf8E4M3FN>, %[[SCX:[a-z0-9]+]]: tensor<1x256xf32>
// GRAD:         %[[DY:.*]], %[[SDY:.*]] = lm.quantize_rows %[[G:.*]] : (tensor<128x384xbf16>) -> (tensor<128x384xf8E4M3FN>, tensor<3x128xf32>)
// GRAD-NEXT:    lm.scaled_matmul %[[DY]], %{{.*}} scales %[[SDY]], %{{.*}} -> tensor<128x256xbf16> {{{.*}}tiles}
// GRAD-NEXT:    %[[CDY:.*]], %[[SCDY:.*]] = lm.quantize_columns %[[G]] : (tensor<128x384xbf16>) -> (tensor<384x128xf8E4M3FN>, tensor<1x384xf32>)
// GRAD-NEXT:    lm.scaled_matmul %[[CDY]], %[[CX]] scales %[[SCDY]], %[[SCX]] : {{.*}} -> tensor<384x256xf32> {{{.*}}transpose_b}
func.func private @layer(%x: tensor<128x256xbf16>, %w: tensor<384x256xbf16>) -> tensor<128x384xbf16> {
  %y = lm.linear %x, %w : (tensor<128x256xbf16>, tensor<384x256xbf16>) -> tensor<128x384xbf16>
  return %y : tensor<128x384xbf16>
}

func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<128x256xbf16>
  %w = lm.load @w.compute : tensor<384x256xbf16>
  %y = call @layer(%x, %w) {lm.layer = 0 : i64} : (tensor<128x256xbf16>, tensor<384x256xbf16>) -> tensor<128x384xbf16>
  %targets = lm.load @targets : tensor<128xi32>
  %head = lm.load @head : tensor<24x384xbf16>
  %scale = lm.load @one : tensor<f32>
  %loss = lm.linear_cross_entropy %y, %head, %targets chunk 128 : (tensor<128x384xbf16>, tensor<24x384xbf16>, tensor<128xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}
lm.variable @targets input : tensor<128xi32> init none
lm.variable @head input : tensor<24x384xbf16> init none
lm.variable @one scalar : tensor<f32> init none

// -----

lm.variable @v parameter : tensor<64x128xf32> init zeros
lm.variable @v.compute compute_copy : tensor<64x128xbf16> init copy_of(source = "v") {parameter = "v"}
func.func private @narrow(%x: tensor<128x128xbf16>, %v: tensor<64x128xbf16>) -> tensor<128x64xbf16> {
  // expected-error @unknown {{the weight of mlp.up_proj is 'tensor<64x128xbf16>', and products of 8-bit floats in blocks need multiples of 128; pad the model}}
  %y = lm.linear %x, %v : (tensor<128x128xbf16>, tensor<64x128xbf16>) -> tensor<128x64xbf16> loc("mlp.up_proj")
  return %y : tensor<128x64xbf16>
}
func.func @forward(%x: tensor<128x128xbf16>) -> tensor<128x64xbf16> {
  %v = lm.load @v.compute : tensor<64x128xbf16>
  %y = call @narrow(%x, %v) : (tensor<128x128xbf16>, tensor<64x128xbf16>) -> tensor<128x64xbf16>
  return %y : tensor<128x64xbf16>
}

// -----

lm.variable @u parameter : tensor<128x128xf32> init zeros
lm.variable @u.compute compute_copy : tensor<128x128xbf16> init copy_of(source = "u") {parameter = "u"}
func.func private @short(%x: tensor<96x128xbf16>, %u: tensor<128x128xbf16>) -> tensor<96x128xbf16> {
  // expected-error @unknown {{the input of mlp.up_proj has 96 rows, and blocks need multiples of 128; change training.micro_batch_size}}
  %y = lm.linear %x, %u : (tensor<96x128xbf16>, tensor<128x128xbf16>) -> tensor<96x128xbf16> loc("mlp.up_proj")
  return %y : tensor<96x128xbf16>
}
func.func @forward(%x: tensor<96x128xbf16>) -> tensor<96x128xbf16> {
  %u = lm.load @u.compute : tensor<128x128xbf16>
  %y = call @short(%x, %u) : (tensor<96x128xbf16>, tensor<128x128xbf16>) -> tensor<96x128xbf16>
  return %y : tensor<96x128xbf16>
}

// -----

// Products of experts have codes, too; the gradient of their weights is of what the codes were made from.
lm.variable @loss scalar : tensor<f32> init none
lm.variable @rows input : tensor<40x256xbf16> init none
lm.variable @offsets input : tensor<4xi32> init none
lm.variable @e parameter : tensor<384x256xf32> init normal(stddev = 0.02 : f64)
lm.variable @e.compute compute_copy : tensor<384x256xbf16> init copy_of(source = "e") {parameter = "e"}
// CHECK-LABEL: func.func private @experts(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<40x256xbf16>, %[[O:[a-z0-9]+]]: tensor<4xi32>, %[[W:[a-z0-9]+]]: tensor<384x256xf8E4M3FN>, %[[S:[a-z0-9]+]]: tensor<3x2xf32>)
// CHECK-NEXT:    %[[C:.*]], %[[SX:.*]] = lm.quantize_rows %[[X]] : (tensor<40x256xbf16>) -> (tensor<40x256xf8E4M3FN>, tensor<2x40xf32>)
// CHECK-NEXT:    lm.expert_scaled_linear %[[C]], %[[W]], %[[O]] scales %[[SX]], %[[S]] : {{.*}} -> tensor<40x128xbf16>{{$}}
// CHECK:       func.func @forward
// CHECK:         lm.quantize_tiles %{{.*}} : (tensor<384x256xbf16>) -> (tensor<384x256xf8E4M3FN>, tensor<3x2xf32>)
// GRAD-LABEL: func.func private @experts.backward(
// GRAD:         %[[DY:.*]], %[[SDY:.*]] = lm.quantize_rows %[[G:.*]] : (tensor<40x128xbf16>) -> (tensor<40x128xf8E4M3FN>, tensor<1x40xf32>)
// GRAD-NEXT:    lm.expert_scaled_linear %[[DY]], %{{.*}}, %{{.*}} scales %[[SDY]], %{{.*}} -> tensor<40x256xbf16> {{{.*}}transposed}
// GRAD-NEXT:    lm.expert_linear_grad %[[G]], %{{.*}} -> tensor<384x256xf32>
func.func private @experts(%x: tensor<40x256xbf16>, %w: tensor<384x256xbf16>, %o: tensor<4xi32>) -> tensor<40x128xbf16> {
  %y = lm.expert_linear %x, %w, %o : (tensor<40x256xbf16>, tensor<384x256xbf16>, tensor<4xi32>) -> tensor<40x128xbf16>
  return %y : tensor<40x128xbf16>
}
func.func @forward() -> tensor<f32> {
  %x = lm.load @rows : tensor<40x256xbf16>
  %o = lm.load @offsets : tensor<4xi32>
  %w = lm.load @e.compute : tensor<384x256xbf16>
  %y = call @experts(%x, %w, %o) {lm.layer = 0 : i64} : (tensor<40x256xbf16>, tensor<384x256xbf16>, tensor<4xi32>) -> tensor<40x128xbf16>
  %targets = lm.load @targets : tensor<40xi32>
  %head = lm.load @head : tensor<24x128xbf16>
  %loss = lm.linear_cross_entropy %y, %head, %targets chunk 40 : (tensor<40x128xbf16>, tensor<24x128xbf16>, tensor<40xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}
lm.variable @targets input : tensor<40xi32> init none
lm.variable @head input : tensor<24x128xbf16> init none

// -----

lm.variable @f parameter : tensor<192x128xf32> init zeros
lm.variable @f.compute compute_copy : tensor<192x128xbf16> init copy_of(source = "f") {parameter = "f"}
func.func private @narrow(%x: tensor<40x128xbf16>, %f: tensor<192x128xbf16>, %o: tensor<4xi32>) -> tensor<40x64xbf16> {
  // expected-error @unknown {{the weight of mlp.experts is 64 x 128 for each expert, and products of 8-bit floats in blocks need multiples of 128; pad the model}}
  %y = lm.expert_linear %x, %f, %o : (tensor<40x128xbf16>, tensor<192x128xbf16>, tensor<4xi32>) -> tensor<40x64xbf16> loc("mlp.experts")
  return %y : tensor<40x64xbf16>
}
func.func @forward(%x: tensor<40x128xbf16>, %o: tensor<4xi32>) -> tensor<40x64xbf16> {
  %f = lm.load @f.compute : tensor<192x128xbf16>
  %y = call @narrow(%x, %f, %o) : (tensor<40x128xbf16>, tensor<192x128xbf16>, tensor<4xi32>) -> tensor<40x64xbf16>
  return %y : tensor<40x64xbf16>
}
