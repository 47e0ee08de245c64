// lm-quantize-linears leaves weights that are `unquantized` in the compute dtype.
// RUN: lmc-opt %s --lm-quantize-linears | FileCheck %s

// Layer 1 has a weight that stays in the compute dtype. Layer 0, which has none, calls a copy of the function. In it both products
// read x, which is cast once.
// CHECK-LABEL: func.func private @layer(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<8x16xbf16>, %[[W:[a-z0-9]+]]: tensor<16x16xbf16>, %[[C:[a-z0-9]+]]: tensor<16x16xf8E4M3FN>, %[[S:[a-z0-9]+]]: tensor<f32>)
// CHECK:         lm.linear %[[X]], %[[W]]
// CHECK-NOT:     lm.linear
// CHECK:         lm.scaled_matmul %{{.*}}, %[[C]] scales %{{.*}}, %[[S]]
// CHECK-LABEL: func.func private @layer.copy1(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<8x16xbf16>, %{{.*}}: tensor<16x16xf8E4M3FN>, %{{.*}}: tensor<f32>, %{{.*}}: tensor<16x16xf8E4M3FN>, %{{.*}}: tensor<f32>)
// CHECK:         %[[CX:.*]] = lm.quantize %[[X]]
// CHECK-NOT:     lm.quantize
// CHECK:         lm.scaled_matmul %[[CX]]
// CHECK:         lm.scaled_matmul %[[CX]]
// CHECK-LABEL: func.func @forward
// CHECK:         call @layer.copy1({{.*}}lm.layer = 0
// CHECK:         call @layer({{.*}}lm.layer = 1
lm.variable @a0 parameter : tensor<16x16xf32> init zeros
lm.variable @a0.compute compute_copy : tensor<16x16xbf16> init copy_of(source = "a0") {parameter = "a0"}
lm.variable @a1 parameter : tensor<16x16xf32> init zeros {unquantized}
lm.variable @a1.compute compute_copy : tensor<16x16xbf16> init copy_of(source = "a1") {parameter = "a1"}
lm.variable @b0 parameter : tensor<16x16xf32> init zeros
lm.variable @b0.compute compute_copy : tensor<16x16xbf16> init copy_of(source = "b0") {parameter = "b0"}
lm.variable @b1 parameter : tensor<16x16xf32> init zeros
lm.variable @b1.compute compute_copy : tensor<16x16xbf16> init copy_of(source = "b1") {parameter = "b1"}
lm.variable @x input : tensor<8x16xbf16> init none
func.func private @layer(%x: tensor<8x16xbf16>, %a: tensor<16x16xbf16>, %b: tensor<16x16xbf16>) -> tensor<8x16xbf16> {
  %y = lm.linear %x, %a : (tensor<8x16xbf16>, tensor<16x16xbf16>) -> tensor<8x16xbf16>
  %z = lm.linear %x, %b : (tensor<8x16xbf16>, tensor<16x16xbf16>) -> tensor<8x16xbf16>
  %sum = lm.add %y, %z : tensor<8x16xbf16>
  return %sum : tensor<8x16xbf16>
}
func.func @forward() {
  %x = lm.load @x : tensor<8x16xbf16>
  %a0 = lm.load @a0.compute : tensor<16x16xbf16>
  %b0 = lm.load @b0.compute : tensor<16x16xbf16>
  %a1 = lm.load @a1.compute : tensor<16x16xbf16>
  %b1 = lm.load @b1.compute : tensor<16x16xbf16>
  %y = call @layer(%x, %a0, %b0) {lm.layer = 0 : i64} : (tensor<8x16xbf16>, tensor<16x16xbf16>, tensor<16x16xbf16>) -> tensor<8x16xbf16>
  %z = call @layer(%y, %a1, %b1) {lm.layer = 1 : i64} : (tensor<8x16xbf16>, tensor<16x16xbf16>, tensor<16x16xbf16>) -> tensor<8x16xbf16>
  lm.store %z, @x : tensor<8x16xbf16>
  return
}
