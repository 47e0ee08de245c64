// lm-keep-codes: the first micro-step keeps the codes and the scale of a weight, and the later ones read them.
// RUN: lmc-opt %s --split-input-file --lm-keep-codes --canonicalize | FileCheck %s

// CHECK-DAG: lm.variable @w.codes compute_copy : tensor<32x16xf8E4M3FN> init none {anonymous}
// CHECK-DAG: lm.variable @w.scale compute_copy : tensor<f32> init none {anonymous}
lm.variable @w parameter : tensor<32x16xf32> init zeros
lm.variable @x input : tensor<32x16xf32> init none
lm.variable @y input : tensor<32x32xf32> init none

// CHECK-LABEL: func.func @micro_first
// CHECK:         %[[W:.*]] = lm.load @w
// CHECK:         %[[MAX:.*]] = lm.max_abs %[[W]]
// CHECK:         %[[S:.*]] = lm.fp8_scale %[[MAX]]
// CHECK:         %[[C:.*]] = lm.quantize %[[W]], %[[S]]
// CHECK-NOT:     lm.store {{.*}}, @x
// CHECK-DAG:     lm.store %[[C]], @w.codes
// CHECK-DAG:     lm.store %[[S]], @w.scale
func.func @micro_first() {
  %w = lm.load @w : tensor<32x16xf32>
  %max = lm.max_abs %w : (tensor<32x16xf32>) -> tensor<f32>
  %scale = lm.fp8_scale %max of f8E4M3FN : (tensor<f32>) -> tensor<f32>
  %codes = lm.quantize %w, %scale : (tensor<32x16xf32>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
  %y = lm.scaled_matmul %codes, %codes scales %scale, %scale : (tensor<32x16xf8E4M3FN>, tensor<32x16xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<32x32xf32> {transpose_b}
  lm.store %y, @y : tensor<32x32xf32>
  return
}

// Another scale than that of the weight itself is left alone.
// CHECK-LABEL: func.func @micro_last
// CHECK-DAG:     %[[C:.*]] = lm.load @w.codes : tensor<32x16xf8E4M3FN>
// CHECK-DAG:     %[[S:.*]] = lm.load @w.scale : tensor<f32>
// CHECK:         %[[OTHER:.*]] = lm.quantize %{{.*}}, %[[SX:.*]] :
// CHECK:         lm.scaled_matmul %[[C]], %[[OTHER]] scales %[[S]], %[[SX]]
func.func @micro_last() {
  %w = lm.load @w : tensor<32x16xf32>
  %max = lm.max_abs %w : (tensor<32x16xf32>) -> tensor<f32>
  %scale = lm.fp8_scale %max of f8E4M3FN : (tensor<f32>) -> tensor<f32>
  %codes = lm.quantize %w, %scale : (tensor<32x16xf32>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
  %x = lm.load @x : tensor<32x16xf32>
  %maxX = lm.max_abs %x : (tensor<32x16xf32>) -> tensor<f32>
  %scaleX = lm.fp8_scale %maxX of f8E4M3FN : (tensor<f32>) -> tensor<f32>
  %other = lm.quantize %w, %scaleX : (tensor<32x16xf32>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
  %y = lm.scaled_matmul %codes, %other scales %scale, %scaleX : (tensor<32x16xf8E4M3FN>, tensor<32x16xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<32x32xf32> {transpose_b}
  lm.store %y, @y : tensor<32x32xf32>
  return
}

// -----

// Without gradient accumulation nothing is kept.
// CHECK-NOT: lm.variable @v.codes
// CHECK:     lm.variable @v parameter
lm.variable @v parameter : tensor<32x16xf32> init zeros
// CHECK: func.func @micro_first
// CHECK-NOT: lm.store
func.func @micro_first() {
  %w = lm.load @v : tensor<32x16xf32>
  %max = lm.max_abs %w : (tensor<32x16xf32>) -> tensor<f32>
  %scale = lm.fp8_scale %max of f8E4M3FN : (tensor<f32>) -> tensor<f32>
  %codes = lm.quantize %w, %scale : (tensor<32x16xf32>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
  return
}

// -----

// Two casts of a weight may share a scale.
lm.variable @u parameter : tensor<32x16xf32> init zeros
lm.variable @z input : tensor<32x32xf32> init none
// CHECK: func.func @micro_first
func.func @micro_first() {
  %w = lm.load @u : tensor<32x16xf32>
  %max = lm.max_abs %w : (tensor<32x16xf32>) -> tensor<f32>
  %scale = lm.fp8_scale %max of f8E4M3FN : (tensor<f32>) -> tensor<f32>
  %codes = lm.quantize %w, %scale : (tensor<32x16xf32>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
  return
}
// CHECK-LABEL: func.func @micro_last
// CHECK-NOT:     lm.quantize
// CHECK:         lm.scaled_matmul
func.func @micro_last() {
  %w = lm.load @u : tensor<32x16xf32>
  %max = lm.max_abs %w : (tensor<32x16xf32>) -> tensor<f32>
  %scale = lm.fp8_scale %max of f8E4M3FN : (tensor<f32>) -> tensor<f32>
  %codes = lm.quantize %w, %scale : (tensor<32x16xf32>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
  %again = lm.quantize %w, %scale : (tensor<32x16xf32>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
  %z = lm.scaled_matmul %codes, %again scales %scale, %scale : (tensor<32x16xf8E4M3FN>, tensor<32x16xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<32x32xf32> {transpose_b}
  lm.store %z, @z : tensor<32x32xf32>
  return
}

// -----

// Ranks that exchange codes load them. The first micro-step keeps their transpose.
// CHECK: lm.variable @w.compute.transposed compute_copy : tensor<16x32xf8E4M3FN> init none {anonymous}
lm.variable @w.compute compute_copy : tensor<32x16xf8E4M3FN> init none
lm.variable @z input : tensor<16x32xf8E4M3FN> init none

// CHECK-LABEL: func.func @micro_first
// CHECK:         %[[T:.*]] = lm.transpose
// CHECK:         lm.store %[[T]], @w.compute.transposed
func.func @micro_first() {
  %w = lm.load @w.compute : tensor<32x16xf8E4M3FN>
  %t = lm.transpose %w : (tensor<32x16xf8E4M3FN>) -> tensor<16x32xf8E4M3FN>
  lm.store %t, @z : tensor<16x32xf8E4M3FN>
  return
}

// CHECK-LABEL: func.func @micro_last
// CHECK-NOT:     lm.transpose
// CHECK:         %[[T:.*]] = lm.load @w.compute.transposed
// CHECK:         lm.store %[[T]], @z
func.func @micro_last() {
  %w = lm.load @w.compute : tensor<32x16xf8E4M3FN>
  %t = lm.transpose %w : (tensor<32x16xf8E4M3FN>) -> tensor<16x32xf8E4M3FN>
  lm.store %t, @z : tensor<16x32xf8E4M3FN>
  return
}
