// lm-pad-vocabulary gives the head's weights as many rows as the next multiple; the loss, the logits and names outside of the graph see the old ones.
// RUN: lmc-opt %s --split-input-file --lm-pad-vocabulary=multiple=8 | FileCheck %s
// RUN: not lmc-opt %s --split-input-file --lm-pad-vocabulary=multiple=0 2>&1 | FileCheck %s --check-prefix=NONE

// NONE: needs a multiple of at least 1, not 0

// The parameter and its copy in the compute dtype grow; only the parameter's part has initial
// values.
// CHECK:      lm.variable @head parameter : tensor<16x4xf32> init normal(stddev = 2.000000e-02 : f64) {parts = [#lm.part<"head", rows = 13, init = normal(stddev = 2.000000e-02 : f64)>, #lm.part<"", rows = 3, init = zeros>]}
// CHECK-NEXT: lm.variable @head.compute compute_copy : tensor<16x4xbf16>
// The embedding is not tied to the head, and stays.
// CHECK-NEXT: lm.variable @embed parameter : tensor<13x4xf32>
lm.variable @head parameter : tensor<13x4xf32> init normal(stddev = 0.02 : f64)
lm.variable @head.compute compute_copy : tensor<13x4xbf16> init copy_of(source = "head") {parameter = "head"}
lm.variable @embed parameter : tensor<13x4xf32> init zeros
lm.variable @tokens input : tensor<6xi32> init none
lm.variable @x input : tensor<6x4xbf16> init none
lm.variable @logits input : tensor<6x13xbf16> init none

// CHECK-LABEL: func.func @forward
// CHECK:         %[[W:.*]] = lm.load @head.compute : tensor<16x4xbf16>
// CHECK:         lm.linear_cross_entropy %{{.*}}, %[[W]], %{{.*}} chunk 6 : (tensor<6x4xbf16>, tensor<16x4xbf16>, tensor<6xi32>) -> tensor<f32> {classes = 13 : i64}
func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<6x4xbf16>
  %w = lm.load @head.compute : tensor<13x4xbf16>
  %t = lm.load @tokens : tensor<6xi32>
  %loss = lm.linear_cross_entropy %x, %w, %t chunk 6 : (tensor<6x4xbf16>, tensor<13x4xbf16>, tensor<6xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// CHECK-LABEL: func.func @logits_of_all
// CHECK:         %[[ALL:.*]] = lm.linear %{{.*}}, %{{.*}} : (tensor<6x4xbf16>, tensor<16x4xbf16>) -> tensor<6x16xbf16>
// CHECK:         %[[PARTS:.*]]:2 = lm.split %[[ALL]] : (tensor<6x16xbf16>) -> (tensor<6x13xbf16>, tensor<6x3xbf16>)
// CHECK:         lm.store %[[PARTS]]#0, @logits
func.func @logits_of_all() {
  %x = lm.load @x : tensor<6x4xbf16>
  %w = lm.load @head.compute : tensor<13x4xbf16>
  %y = lm.linear %x, %w : (tensor<6x4xbf16>, tensor<13x4xbf16>) -> tensor<6x13xbf16>
  lm.store %y, @logits : tensor<6x13xbf16>
  return
}

// -----

// With tied embeddings the embedding reads the padded rows too.
// CHECK:       lm.variable @embed parameter : tensor<16x4xf32>
// CHECK:       lm.embedding %{{.*}}, %{{.*}} : (tensor<6xi32>, tensor<16x4xf32>) -> tensor<6x4xf32>
// CHECK:       {classes = 13 : i64}
lm.variable @embed parameter : tensor<13x4xf32> init zeros
lm.variable @tokens input : tensor<6xi32> init none
func.func @forward() -> tensor<f32> {
  %t = lm.load @tokens : tensor<6xi32>
  %w = lm.load @embed : tensor<13x4xf32>
  %x = lm.embedding %t, %w : (tensor<6xi32>, tensor<13x4xf32>) -> tensor<6x4xf32>
  %loss = lm.linear_cross_entropy %x, %w, %t chunk 6 : (tensor<6x4xf32>, tensor<13x4xf32>, tensor<6xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A vocabulary that is a multiple already stays as it is.
// CHECK:     lm.variable @head parameter : tensor<24x4xf32> init zeros
// CHECK-NOT: classes
lm.variable @head parameter : tensor<24x4xf32> init zeros
lm.variable @tokens input : tensor<6xi32> init none
lm.variable @x input : tensor<6x4xf32> init none
func.func @forward() -> tensor<f32> {
  %x = lm.load @x : tensor<6x4xf32>
  %w = lm.load @head : tensor<24x4xf32>
  %t = lm.load @tokens : tensor<6xi32>
  %loss = lm.linear_cross_entropy %x, %w, %t chunk 6 : (tensor<6x4xf32>, tensor<24x4xf32>, tensor<6xi32>) -> tensor<f32>
  return %loss : tensor<f32>
}
