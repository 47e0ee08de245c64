// lm-fold-transpose: a cast whose scale comes from its input writes the transpose, too. Casts of rows and columns,
// or of tiles and of those of the transpose, become one. SwiGLU and its gradient become a part of such a cast.
// RUN: lmc-opt %s --lm-fold-transpose | FileCheck %s
// RUN: lmc-opt %s --lm-fold-transpose --kern-convert-lm | FileCheck %s --check-prefix=KERN

// CHECK-LABEL: func.func @own_scale(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<32x16xbf16>)
// CHECK:         %[[S:.*]] = lm.fp8_scale
// CHECK-NEXT:    %[[C:.*]], %[[T:.*]] = lm.quantize_transposed %[[X]], %[[S]] : (tensor<32x16xbf16>, tensor<f32>) -> (tensor<32x16xf8E5M2>, tensor<16x32xf8E5M2>) {backward}
// CHECK-NEXT:    return %[[C]], %[[T]]
// KERN-LABEL:  func.func @own_scale(
// KERN:          kern.quantize_transposed %{{.*}}, %{{.*}} : (tensor<32x16xbf16>, tensor<f32>) -> (tensor<32x16xf8E5M2>, tensor<16x32xf8E5M2>)
func.func @own_scale(%x: tensor<32x16xbf16>) -> (tensor<32x16xf8E5M2>, tensor<16x32xf8E5M2>) {
  %max = lm.max_abs %x : (tensor<32x16xbf16>) -> tensor<f32>
  %scale = lm.fp8_scale %max of f8E5M2 : (tensor<f32>) -> tensor<f32>
  %codes = lm.quantize %x, %scale : (tensor<32x16xbf16>, tensor<f32>) -> tensor<32x16xf8E5M2> {backward}
  %transposed = lm.transpose %codes : (tensor<32x16xf8E5M2>) -> tensor<16x32xf8E5M2> {backward}
  return %codes, %transposed : tensor<32x16xf8E5M2>, tensor<16x32xf8E5M2>
}

// With a scale that is known before, the kernel that computes x may cast it. Only the transpose reads these codes.
// CHECK-LABEL: func.func @known_scale(
// CHECK-NEXT:    lm.quantize
// CHECK-NEXT:    lm.transpose
// KERN-LABEL:  func.func @known_scale(
// KERN:          kern.transpose %{{.*}} : (tensor<32x16xf8E4M3FN>) -> tensor<16x32xf8E4M3FN>
func.func @known_scale(%x: tensor<32x16xbf16>, %scale: tensor<f32>) -> tensor<16x32xf8E4M3FN> {
  %codes = lm.quantize %x, %scale : (tensor<32x16xbf16>, tensor<f32>) -> tensor<32x16xf8E4M3FN>
  %transposed = lm.transpose %codes : (tensor<32x16xf8E4M3FN>) -> tensor<16x32xf8E4M3FN>
  return %transposed : tensor<16x32xf8E4M3FN>
}

// The op is where the first of both was, and belongs to the same pass.
// CHECK-LABEL: func.func @rows_columns(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<128x256xbf16>)
// CHECK-NEXT:    %[[C:.*]], %[[S:.*]], %[[T:.*]], %[[U:.*]] = lm.quantize_rows_columns %[[X]] : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<256x128xf8E4M3FN>, tensor<1x256xf32>) {backward}
// CHECK-NEXT:    return %[[C]], %[[S]], %[[T]], %[[U]]
// KERN-LABEL:  func.func @rows_columns(
// KERN:          kern.quantize_rows_columns %{{.*}} : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<256x128xf8E4M3FN>, tensor<1x256xf32>)
func.func @rows_columns(%x: tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<256x128xf8E4M3FN>, tensor<1x256xf32>) {
  %t, %u = lm.quantize_columns %x : (tensor<128x256xbf16>) -> (tensor<256x128xf8E4M3FN>, tensor<1x256xf32>) {backward}
  %c, %s = lm.quantize_rows %x : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>) {backward}
  return %c, %s, %t, %u : tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<256x128xf8E4M3FN>, tensor<1x256xf32>
}

// CHECK-LABEL: func.func @tiles(
// CHECK-NEXT:    %[[C:.*]], %[[S:.*]], %[[T:.*]], %[[U:.*]] = lm.quantize_tiles_both
// CHECK-NEXT:    return %[[C]], %[[S]], %[[T]], %[[U]]
func.func @tiles(%x: tensor<128x256xf32>) -> (tensor<128x256xf8E4M3FN>, tensor<1x4xf32>, tensor<256x128xf8E4M3FN>, tensor<2x4xf32>) {
  %c, %s = lm.quantize_tiles %x : (tensor<128x256xf32>) -> (tensor<128x256xf8E4M3FN>, tensor<1x4xf32>)
  %t = lm.transpose %c : (tensor<128x256xf8E4M3FN>) -> tensor<256x128xf8E4M3FN>
  %u = lm.transpose_scales %s : (tensor<1x4xf32>) -> tensor<2x4xf32>
  return %c, %s, %t, %u : tensor<128x256xf8E4M3FN>, tensor<1x4xf32>, tensor<256x128xf8E4M3FN>, tensor<2x4xf32>
}

// What rounds f32 for a cast of tiles becomes a part of it.
// CHECK-LABEL: func.func @rounded_tiles(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<128x256xf32>)
// CHECK-NEXT:    %[[C:.*]], %{{.*}}, %[[T:.*]], %{{.*}} = lm.quantize_tiles_both %[[X]] : (tensor<128x256xf32>) -> ({{.*}}) {rounded}
// CHECK-NEXT:    %[[D:.*]], %{{.*}} = lm.quantize_tiles %[[X]] : (tensor<128x256xf32>) -> ({{.*}}) {rounded}
// CHECK-NEXT:    return %[[C]], %[[T]], %[[D]]
// KERN-LABEL:  func.func @rounded_tiles(
// KERN:          kern.quantize_tiles_both {{.*}} {rounded}
// KERN:          kern.quantize_tiles {{.*}} {rounded}
func.func @rounded_tiles(%x: tensor<128x256xf32>) -> (tensor<128x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>, tensor<128x256xf8E4M3FN>) {
  %y = lm.cast %x : (tensor<128x256xf32>) -> tensor<128x256xbf16>
  %c, %s = lm.quantize_tiles %y : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<1x4xf32>)
  %t = lm.transpose %c : (tensor<128x256xf8E4M3FN>) -> tensor<256x128xf8E4M3FN>
  %u = lm.transpose_scales %s : (tensor<1x4xf32>) -> tensor<2x4xf32>
  %z = lm.cast %x : (tensor<128x256xf32>) -> tensor<128x256xbf16>
  %d, %v = lm.quantize_tiles %z : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<1x4xf32>)
  return %c, %t, %d : tensor<128x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>, tensor<128x256xf8E4M3FN>
}

// Other formats, or other tensors.
// CHECK-LABEL: func.func @others(
// CHECK-NEXT:    lm.quantize_rows %
// CHECK-NEXT:    lm.quantize_columns
// CHECK-NEXT:    lm.quantize_columns
func.func @others(%x: tensor<128x128xbf16>, %y: tensor<128x128xbf16>) -> (tensor<128x128xf8E4M3FN>, tensor<128x128xf8E5M2>, tensor<128x128xf8E4M3FN>) {
  %c, %s = lm.quantize_rows %x : (tensor<128x128xbf16>) -> (tensor<128x128xf8E4M3FN>, tensor<1x128xf32>)
  %t, %u = lm.quantize_columns %x : (tensor<128x128xbf16>) -> (tensor<128x128xf8E5M2>, tensor<1x128xf32>)
  %v, %w = lm.quantize_columns %y : (tensor<128x128xbf16>) -> (tensor<128x128xf8E4M3FN>, tensor<1x128xf32>)
  return %c, %t, %v : tensor<128x128xf8E4M3FN>, tensor<128x128xf8E5M2>, tensor<128x128xf8E4M3FN>
}

// SwiGLU that only the casts read is not stored.
// CHECK-LABEL: func.func @swiglu(
// CHECK-SAME:    %[[GU:[^:]*]]: tensor<128x512xbf16>)
// CHECK-NEXT:    %[[C:.*]], %[[S:.*]], %[[T:.*]], %[[U:.*]] = lm.swiglu_quantize %[[GU]] : (tensor<128x512xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<256x128xf8E4M3FN>, tensor<1x256xf32>)
// CHECK-NEXT:    return %[[C]], %[[T]]
// KERN-LABEL:  func.func @swiglu(
// KERN:          kern.swiglu_quantize
func.func @swiglu(%gu: tensor<128x512xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>) {
  %g, %u = lm.split %gu : (tensor<128x512xbf16>) -> (tensor<128x256xbf16>, tensor<128x256xbf16>)
  %a = lm.swiglu %g, %u : tensor<128x256xbf16>
  %c, %s = lm.quantize_rows %a : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)
  %t, %v = lm.quantize_columns %a : (tensor<128x256xbf16>) -> (tensor<256x128xf8E4M3FN>, tensor<1x256xf32>)
  return %c, %t : tensor<128x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>
}

// Nor is its gradient. What else reads the halves stays.
// CHECK-LABEL: func.func @swiglu_grad(
// CHECK-SAME:    %[[D:[^:]*]]: tensor<128x128xbf16>, %[[GU:[^:]*]]: tensor<128x256xbf16>)
// CHECK-NEXT:    %[[H:.*]]:2 = lm.split %[[GU]]
// CHECK-NEXT:    %[[A:.*]] = lm.swiglu %[[H]]#0, %[[H]]#1
// CHECK-NEXT:    %[[C:.*]], %{{.*}}, %[[T:.*]], %{{.*}} = lm.swiglu_grad_quantize %[[D]], %[[GU]] : (tensor<128x128xbf16>, tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<256x128xf8E4M3FN>, tensor<1x256xf32>) {backward}
// CHECK-NEXT:    return %[[A]], %[[C]], %[[T]]
// KERN-LABEL:  func.func @swiglu_grad(
// KERN:          kern.swiglu_grad_quantize
func.func @swiglu_grad(%d: tensor<128x128xbf16>, %gu: tensor<128x256xbf16>) -> (tensor<128x128xbf16>, tensor<128x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>) {
  %g, %u = lm.split %gu : (tensor<128x256xbf16>) -> (tensor<128x128xbf16>, tensor<128x128xbf16>)
  %a = lm.swiglu %g, %u : tensor<128x128xbf16>
  %dg, %du = lm.swiglu_grad %d, %g, %u : tensor<128x128xbf16> {backward}
  %dgu = lm.join %dg, %du : (tensor<128x128xbf16>, tensor<128x128xbf16>) -> tensor<128x256xbf16> {backward}
  %c, %s = lm.quantize_rows %dgu : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>) {backward}
  %t, %v = lm.quantize_columns %dgu : (tensor<128x256xbf16>) -> (tensor<256x128xf8E4M3FN>, tensor<1x256xf32>) {backward}
  return %a, %c, %t : tensor<128x128xbf16>, tensor<128x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>
}

// A cast along one dimension reads it.
// CHECK-LABEL: func.func @swiglu_rows(
// CHECK-SAME:    %[[GU:[^:]*]]: tensor<128x512xbf16>)
// CHECK-NEXT:    %[[C:.*]], %{{.*}} = lm.swiglu_quantize_rows %[[GU]] : (tensor<128x512xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)
// CHECK-NEXT:    return %[[C]]
// KERN-LABEL:  func.func @swiglu_rows(
// KERN:          kern.swiglu_quantize_rows
func.func @swiglu_rows(%gu: tensor<128x512xbf16>) -> tensor<128x256xf8E4M3FN> {
  %g, %u = lm.split %gu : (tensor<128x512xbf16>) -> (tensor<128x256xbf16>, tensor<128x256xbf16>)
  %a = lm.swiglu %g, %u : tensor<128x256xbf16>
  %c, %s = lm.quantize_rows %a : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)
  return %c : tensor<128x256xf8E4M3FN>
}
// CHECK-LABEL: func.func @swiglu_columns(
// CHECK-SAME:    %[[GU:[^:]*]]: tensor<128x512xbf16>)
// CHECK-NEXT:    %[[C:.*]], %{{.*}} = lm.swiglu_quantize_columns %[[GU]] : (tensor<128x512xbf16>) -> (tensor<256x128xf8E4M3FN>, tensor<1x256xf32>) {backward}
// CHECK-NEXT:    return %[[C]]
// KERN-LABEL:  func.func @swiglu_columns(
// KERN:          kern.swiglu_quantize_columns
func.func @swiglu_columns(%gu: tensor<128x512xbf16>) -> tensor<256x128xf8E4M3FN> {
  %g, %u = lm.split %gu : (tensor<128x512xbf16>) -> (tensor<128x256xbf16>, tensor<128x256xbf16>)
  %a = lm.swiglu %g, %u : tensor<128x256xbf16>
  %c, %s = lm.quantize_columns %a : (tensor<128x256xbf16>) -> (tensor<256x128xf8E4M3FN>, tensor<1x256xf32>) {backward}
  return %c : tensor<256x128xf8E4M3FN>
}

// Something else reads the activation, or the gradients in the other order.
// CHECK-LABEL: func.func @read_again(
// CHECK:         lm.swiglu %
// CHECK-NEXT:    lm.quantize_rows_columns
// CHECK:         lm.swiglu_grad %
// CHECK:         lm.quantize_rows_columns
func.func @read_again(%gu: tensor<128x256xbf16>) -> (tensor<128x128xbf16>, tensor<128x128xf8E4M3FN>, tensor<128x128xf8E4M3FN>, tensor<128x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>) {
  %g, %u = lm.split %gu : (tensor<128x256xbf16>) -> (tensor<128x128xbf16>, tensor<128x128xbf16>)
  %a = lm.swiglu %g, %u : tensor<128x128xbf16>
  %c, %s = lm.quantize_rows %a : (tensor<128x128xbf16>) -> (tensor<128x128xf8E4M3FN>, tensor<1x128xf32>)
  %t, %v = lm.quantize_columns %a : (tensor<128x128xbf16>) -> (tensor<128x128xf8E4M3FN>, tensor<1x128xf32>)
  %dg, %du = lm.swiglu_grad %a, %g, %u : tensor<128x128xbf16> {backward}
  %dgu = lm.join %du, %dg : (tensor<128x128xbf16>, tensor<128x128xbf16>) -> tensor<128x256xbf16> {backward}
  %c2, %s2 = lm.quantize_rows %dgu : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>) {backward}
  %t2, %v2 = lm.quantize_columns %dgu : (tensor<128x256xbf16>) -> (tensor<256x128xf8E4M3FN>, tensor<1x256xf32>) {backward}
  return %a, %c, %t, %c2, %t2 : tensor<128x128xbf16>, tensor<128x128xf8E4M3FN>, tensor<128x128xf8E4M3FN>, tensor<128x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>
}

// A norm is computed by the cast of its rows. That of columns gets the reciprocals of rows from it, and so
// comes behind it.
// CHECK-LABEL: func.func @norm(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<128x256xbf16>, %[[W:[^:]*]]: tensor<256xf32>)
// CHECK-NEXT:    %[[C:.*]], %{{.*}}, %[[R:.*]] = lm.norm_quantize_rows %[[X]], %[[W]] eps 1.000000e-05 : (tensor<128x256xbf16>, tensor<256xf32>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<128xf32>) {backward}
// CHECK-NEXT:    %[[T:.*]], %{{.*}} = lm.norm_quantize_columns %[[X]], %[[W]], %[[R]] : (tensor<128x256xbf16>, tensor<256xf32>, tensor<128xf32>) -> (tensor<256x128xf8E4M3FN>, tensor<1x256xf32>) {backward}
// CHECK-NEXT:    return %[[C]], %[[T]]
// KERN-LABEL:  func.func @norm(
// KERN:          kern.norm_quantize_rows
// KERN:          kern.norm_quantize_columns
func.func @norm(%x: tensor<128x256xbf16>, %w: tensor<256xf32>) -> (tensor<128x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>) {
  %y = lm.rms_norm %x, %w eps 1.0e-05 : (tensor<128x256xbf16>, tensor<256xf32>) -> tensor<128x256xbf16>
  %t, %u = lm.quantize_columns %y : (tensor<128x256xbf16>) -> (tensor<256x128xf8E4M3FN>, tensor<1x256xf32>) {backward}
  %c, %s = lm.quantize_rows %y : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)
  return %c, %t : tensor<128x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>
}
// The other order.
// CHECK-LABEL: func.func @norm_both(
// CHECK-NEXT:    %[[C:.*]], %{{.*}}, %[[R:.*]] = lm.norm_quantize_rows {{.*}}tensor<128xf32>){{$}}
// CHECK-NEXT:    %[[T:.*]], %{{.*}} = lm.norm_quantize_columns %{{.*}}, %{{.*}}, %[[R]]
// CHECK-NEXT:    return %[[C]], %[[T]]
func.func @norm_both(%x: tensor<128x256xbf16>, %w: tensor<256xf32>) -> (tensor<128x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>) {
  %y = lm.rms_norm %x, %w eps 1.0e-05 : (tensor<128x256xbf16>, tensor<256xf32>) -> tensor<128x256xbf16>
  %c, %s = lm.quantize_rows %y : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)
  %t, %u = lm.quantize_columns %y : (tensor<128x256xbf16>) -> (tensor<256x128xf8E4M3FN>, tensor<1x256xf32>)
  return %c, %t : tensor<128x256xf8E4M3FN>, tensor<256x128xf8E4M3FN>
}
// CHECK-LABEL: func.func @norm_rows(
// CHECK-NEXT:    %[[C:.*]], %{{.*}}, %{{.*}} = lm.norm_quantize_rows
// CHECK-NEXT:    return %[[C]]
func.func @norm_rows(%x: tensor<100x256xbf16>, %w: tensor<256xf32>) -> tensor<100x256xf8E4M3FN> {
  %y = lm.rms_norm %x, %w eps 1.0e-05 : (tensor<100x256xbf16>, tensor<256xf32>) -> tensor<100x256xbf16>
  %c, %s = lm.quantize_rows %y : (tensor<100x256xbf16>) -> (tensor<100x256xf8E4M3FN>, tensor<2x100xf32>)
  return %c : tensor<100x256xf8E4M3FN>
}
// CHECK-LABEL: func.func @norm_columns(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<128x256xf32>, %[[W:[^:]*]]: tensor<256xf32>)
// CHECK-NEXT:    %[[R:.*]] = lm.reciprocal_rms %[[X]] eps 1.000000e-05 : (tensor<128x256xf32>) -> tensor<128xf32> {backward}
// CHECK-NEXT:    %[[T:.*]], %{{.*}} = lm.norm_quantize_columns %[[X]], %[[W]], %[[R]]
// CHECK-NEXT:    return %[[T]]
// KERN-LABEL:  func.func @norm_columns(
// KERN:          kern.fusion row_reduction
// KERN:          kern.norm_quantize_columns
func.func @norm_columns(%x: tensor<128x256xf32>, %w: tensor<256xf32>) -> tensor<256x128xf8E4M3FN> {
  %y = lm.rms_norm %x, %w eps 1.0e-05 : (tensor<128x256xf32>, tensor<256xf32>) -> tensor<128x256xf32>
  %t, %u = lm.quantize_columns %y : (tensor<128x256xf32>) -> (tensor<256x128xf8E4M3FN>, tensor<1x256xf32>) {backward}
  return %t : tensor<256x128xf8E4M3FN>
}

// Norms that something else reads, of heads, of what a kernel decodes, or with weights of bf16 stay.
// CHECK-LABEL: func.func @other_norms(
// CHECK-COUNT-4: lm.rms_norm
// CHECK-NOT:     lm.norm_quantize
func.func @other_norms(%x: tensor<128x256xbf16>, %codes: tensor<128x256xf8E4M3FN>, %scale: tensor<128xf32>, %w: tensor<256xf32>, %h: tensor<128xf32>, %b: tensor<256xbf16>) -> (tensor<128x256xbf16>, tensor<128x256xf8E4M3FN>, tensor<128x256xf8E4M3FN>, tensor<128x256xf8E4M3FN>, tensor<128x256xf8E4M3FN>) {
  %y0 = lm.rms_norm %x, %w eps 1.0e-05 : (tensor<128x256xbf16>, tensor<256xf32>) -> tensor<128x256xbf16>
  %c0, %s0 = lm.quantize_rows %y0 : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)
  %y1 = lm.rms_norm %x, %h eps 1.0e-05 : (tensor<128x256xbf16>, tensor<128xf32>) -> tensor<128x256xbf16>
  %c1, %s1 = lm.quantize_rows %y1 : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)
  %d = lm.dequantize %codes, %scale : (tensor<128x256xf8E4M3FN>, tensor<128xf32>) -> tensor<128x256xbf16>
  %y2 = lm.rms_norm %d, %w eps 1.0e-05 : (tensor<128x256xbf16>, tensor<256xf32>) -> tensor<128x256xbf16>
  %c2, %s2 = lm.quantize_rows %y2 : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)
  %y3 = lm.rms_norm %x, %b eps 1.0e-05 : (tensor<128x256xbf16>, tensor<256xbf16>) -> tensor<128x256xbf16>
  %c3, %s3 = lm.quantize_rows %y3 : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>)
  return %y0, %c0, %c1, %c2, %c3 : tensor<128x256xbf16>, tensor<128x256xf8E4M3FN>, tensor<128x256xf8E4M3FN>, tensor<128x256xf8E4M3FN>, tensor<128x256xf8E4M3FN>
}
