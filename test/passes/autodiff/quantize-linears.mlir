// lm-quantize-linears makes the linear layers of layers products of 8-bit codes. Weights are cast before the call.
// RUN: lmc-opt %s --split-input-file --lm-quantize-linears --verify-diagnostics | FileCheck %s
// RUN: lmc-opt %s --split-input-file --lm-quantize-linears --lm-autodiff --verify-diagnostics | FileCheck %s --check-prefix=GRAD

lm.variable @loss scalar : tensor<f32> init none
lm.variable @x input : tensor<8x16xbf16> init none
lm.variable @w parameter : tensor<32x16xf32> init normal(stddev = 0.02 : f64)
lm.variable @w.compute compute_copy : tensor<32x16xbf16> init copy_of(source = "w") {parameter = "w"}
lm.variable @bias parameter : tensor<32xf32> init zeros
lm.variable @down parameter : tensor<32x16xf32> init normal(stddev = 0.02 : f64)
lm.variable @down.compute compute_copy : tensor<32x16xbf16> init copy_of(source = "down") {parameter = "down"}

// The second linear layer has a transposed weight.
// CHECK-LABEL: func.func private @layer(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<8x16xbf16>, %[[BIAS:[a-z0-9]+]]: tensor<32xf32>, %[[W:[a-z0-9]+]]: tensor<32x16xf8E4M3FN>, %[[SW:[a-z0-9]+]]: tensor<f32>, %[[D:[a-z0-9]+]]: tensor<32x16xf8E4M3FN>, %[[SD:[a-z0-9]+]]: tensor<f32>) -> tensor<8x16xbf16>
// CHECK-NEXT:    %[[MAX:.*]] = lm.max_abs %[[X]] : (tensor<8x16xbf16>) -> tensor<f32>
// CHECK-NEXT:    %[[S:.*]] = lm.fp8_scale %[[MAX]] of f8E4M3FN
// CHECK-NEXT:    %[[C:.*]] = lm.quantize %[[X]], %[[S]] : (tensor<8x16xbf16>, tensor<f32>) -> tensor<8x16xf8E4M3FN>
// CHECK-NEXT:    %[[Y:.*]] = lm.scaled_matmul %[[C]], %[[W]] scales %[[S]], %[[SW]] bias %[[BIAS]] : {{.*}} -> tensor<8x32xbf16> {grad_dtype = f8E5M2, transpose_b}
// CHECK-NEXT:    %[[MAX2:.*]] = lm.max_abs %[[Y]]
// CHECK-NEXT:    %[[S2:.*]] = lm.fp8_scale %[[MAX2]] of f8E4M3FN
// CHECK-NEXT:    %[[C2:.*]] = lm.quantize %[[Y]], %[[S2]]
// CHECK-NEXT:    %[[Z:.*]] = lm.scaled_matmul %[[C2]], %[[D]] scales %[[S2]], %[[SD]] residual %[[X]] : {{.*}} -> tensor<8x16xbf16> {grad_dtype = f8E5M2}
// CHECK-NEXT:    return %[[Z]]

// The backward half gets codes and scales, not x. The gradient of a result is cast once for both products that read it, and is
// itself that of the residual.
// GRAD-LABEL: func.func private @layer.backward(
// GRAD-SAME:    %[[DZ:[a-z0-9]+]]: tensor<8x16xbf16>
// GRAD-NOT:     lm.linear
// GRAD:         %[[MAX:.*]] = lm.max_abs %[[DZ]]
// GRAD:         %[[S:.*]] = lm.fp8_scale %[[MAX]] of f8E5M2
// GRAD:         %[[C:.*]] = lm.quantize %[[DZ]], %[[S]] : (tensor<8x16xbf16>, tensor<f32>) -> tensor<8x16xf8E5M2>
// GRAD:         %[[DY:.*]] = lm.scaled_matmul %[[C]], %{{.*}} scales %[[S]], %{{.*}} : {{.*}} -> tensor<8x32xbf16> {backward, transpose_b}
// GRAD:         lm.scaled_matmul %{{.*}}, %[[C]] scales %{{.*}}, %[[S]] : {{.*}} -> tensor<32x16xf32> {backward, transpose_a}
// GRAD:         %[[MAX2:.*]] = lm.max_abs %[[DY]]
// GRAD:         %[[S2:.*]] = lm.fp8_scale %[[MAX2]] of f8E5M2
// GRAD:         %[[C2:.*]] = lm.quantize %[[DY]], %[[S2]]
// GRAD:         lm.scaled_matmul %[[C2]], %{{.*}} scales %[[S2]], %{{.*}} : {{.*}} -> tensor<8x16xbf16> {backward}
// GRAD:         lm.scaled_matmul %[[C2]], %{{.*}} scales %[[S2]], %{{.*}} : {{.*}} -> tensor<32x16xf32> {backward, transpose_a}
// GRAD:         lm.sum_rows %[[DY]]
// GRAD-LABEL: func.func @micro
// GRAD:         lm.accumulate %{{.*}}, @w.grad : tensor<32x16xf32>
func.func private @layer(%x: tensor<8x16xbf16>, %w: tensor<32x16xbf16>, %b: tensor<32xf32>, %d: tensor<32x16xbf16>) -> tensor<8x16xbf16> {
  %y = lm.linear %x, %w bias %b : (tensor<8x16xbf16>, tensor<32x16xbf16>, tensor<32xf32>) -> tensor<8x32xbf16>
  %z = lm.linear %y, %d residual %x : (tensor<8x32xbf16>, tensor<32x16xbf16>, tensor<8x16xbf16>) -> tensor<8x16xbf16> {transposed}
  return %z : tensor<8x16xbf16>
}

// CHECK-LABEL: func.func @forward
// CHECK:         %[[W:.*]] = lm.load @w.compute : tensor<32x16xbf16>
// CHECK:         %[[D:.*]] = lm.load @down.compute : tensor<32x16xbf16>
// CHECK-NEXT:    %[[MAX:.*]] = lm.max_abs %[[W]] : (tensor<32x16xbf16>) -> tensor<f32>
// CHECK-NEXT:    %[[S:.*]] = lm.fp8_scale %[[MAX]] of f8E4M3FN
// CHECK-NEXT:    %[[C:.*]] = lm.quantize %[[W]], %[[S]] : (tensor<32x16xbf16>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
// CHECK:         %[[CD:.*]] = lm.quantize %[[D]], %[[SD:.*]] : (tensor<32x16xbf16>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
// CHECK-NEXT:    call @layer(%{{.*}}, %{{.*}}, %[[C]], %[[S]], %[[CD]], %[[SD]])
func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<8x16xbf16>
  %w = lm.load @w.compute : tensor<32x16xbf16>
  %b = lm.load @bias : tensor<32xf32>
  %d = lm.load @down.compute : tensor<32x16xbf16>
  %y = call @layer(%x, %w, %b, %d) {lm.layer = 0 : i64} : (tensor<8x16xbf16>, tensor<32x16xbf16>, tensor<32xf32>, tensor<32x16xbf16>) -> tensor<8x16xbf16>
  %targets = lm.load @targets : tensor<8xi32>
  %head = lm.load @head : tensor<24x16xbf16>
  %scale = lm.load @one : tensor<f32>
  %loss = lm.linear_cross_entropy %y, %head, %targets chunk 8 : (tensor<8x16xbf16>, tensor<24x16xbf16>, tensor<8xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}
lm.variable @targets input : tensor<8xi32> init none
lm.variable @head input : tensor<24x16xbf16> init none
lm.variable @one scalar : tensor<f32> init none

// -----

lm.variable @w parameter : tensor<24x16xf32> init zeros
lm.variable @x input : tensor<8x16xf32> init none
func.func private @layer(%x: tensor<8x16xf32>, %w: tensor<24x16xf32>) -> tensor<8x24xf32> {
  // expected-error @unknown {{the weight of mlp.up_proj is 'tensor<24x16xf32>', and products of 8-bit floats need multiples of 16; pad the model, or name the weight in training.fp8_filter}}
  %y = lm.linear %x, %w : (tensor<8x16xf32>, tensor<24x16xf32>) -> tensor<8x24xf32> loc("mlp.up_proj")
  return %y : tensor<8x24xf32>
}
func.func @forward() {
  %x = lm.load @x : tensor<8x16xf32>
  %w = lm.load @w : tensor<24x16xf32>
  %y = call @layer(%x, %w) : (tensor<8x16xf32>, tensor<24x16xf32>) -> tensor<8x24xf32>
  return
}
