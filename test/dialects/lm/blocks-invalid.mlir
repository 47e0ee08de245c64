// RUN: lmc-opt %s --split-input-file --verify-diagnostics

func.func @rows(%x: tensor<8x100xbf16>) {
  // expected-error @below {{casts 'tensor<8x100xbf16>' in blocks of 128}}
  %c, %s = lm.quantize_rows %x : (tensor<8x100xbf16>) -> (tensor<8x100xf8E4M3FN>, tensor<0x8xf32>)
  return
}

// -----

func.func @columns(%x: tensor<128x3xbf16>) {
  // expected-error @below {{casts 'tensor<128x3xbf16>' to 'tensor<128x3xf8E4M3FN>' with scales 'tensor<1x3xf32>'}}
  %c, %s = lm.quantize_columns %x : (tensor<128x3xbf16>) -> (tensor<128x3xf8E4M3FN>, tensor<1x3xf32>)
  return
}

// -----

func.func @tiles(%x: tensor<128x256xf32>) {
  // expected-error @below {{casts 'tensor<128x256xf32>' to 'tensor<128x256xf8E4M3FN>' with scales 'tensor<1x3xf32>'}}
  %c, %s = lm.quantize_tiles %x : (tensor<128x256xf32>) -> (tensor<128x256xf8E4M3FN>, tensor<1x3xf32>)
  return
}

// -----

func.func @rows_columns(%x: tensor<128x256xf32>) {
  // expected-error @below {{casts 'tensor<128x256xf32>' to 'tensor<256x128xf8E5M2>' with scales 'tensor<1x128xf32>'}}
  %c, %s, %t, %u = lm.quantize_rows_columns %x : (tensor<128x256xf32>) -> (tensor<128x256xf8E5M2>, tensor<2x128xf32>, tensor<256x128xf8E5M2>, tensor<1x128xf32>)
  return
}

// -----

func.func @tiles_both(%x: tensor<128x256xf32>) {
  // expected-error @below {{casts 'tensor<128x256xf32>' to 'tensor<256x128xf8E4M3FN>' with scales 'tensor<2x2xf32>'}}
  %c, %s, %t, %u = lm.quantize_tiles_both %x : (tensor<128x256xf32>) -> (tensor<128x256xf8E4M3FN>, tensor<1x4xf32>, tensor<256x128xf8E4M3FN>, tensor<2x2xf32>)
  return
}

// -----

func.func @experts(%x: tensor<8x128xf8E4M3FN>, %w: tensor<256x384xf8E4M3FN>, %o: tensor<4xi32>, %s: tensor<1x8xf32>, %t: tensor<2x4xf32>) {
  // expected-error @below {{weight_scales}}
  %y = lm.expert_scaled_linear %x, %w, %o scales %s, %t : (tensor<8x128xf8E4M3FN>, tensor<256x384xf8E4M3FN>, tensor<4xi32>, tensor<1x8xf32>, tensor<2x4xf32>) -> tensor<8x256xbf16> {beside}
  return
}

// -----

func.func @experts_both(%x: tensor<8x128xf8E4M3FN>, %w: tensor<256x384xf8E4M3FN>, %o: tensor<4xi32>, %s: tensor<1x8xf32>, %t: tensor<2x3xf32>) {
  // expected-error @below {{has matrices that are transposed, and lie one beside the other}}
  %y = lm.expert_scaled_linear %x, %w, %o scales %s, %t : (tensor<8x128xf8E4M3FN>, tensor<256x384xf8E4M3FN>, tensor<4xi32>, tensor<1x8xf32>, tensor<2x3xf32>) -> tensor<8x256xbf16> {beside, transposed}
  return
}

// -----

func.func @experts_blocks(%x: tensor<8x128xf8E4M3FN>, %w: tensor<256x384xf8E4M3FN>, %o: tensor<4xi32>, %s: tensor<1x8xf32>, %t: tensor<2x3xf32>) {
  // expected-error @below {{has matrices of 128 by 100 elements in blocks of 128}}
  %y = lm.expert_scaled_linear %x, %w, %o scales %s, %t : (tensor<8x128xf8E4M3FN>, tensor<256x384xf8E4M3FN>, tensor<4xi32>, tensor<1x8xf32>, tensor<2x3xf32>) -> tensor<8x100xbf16>
  return
}

// -----

func.func @product(%a: tensor<16x256xf8E4M3FN>, %b: tensor<128x256xf8E4M3FN>, %s: tensor<2x16xf32>, %t: tensor<1x2xf32>) {
  // expected-error @below {{has scales of types 'tensor<2x16xf32>' and 'tensor<1x2xf32>' for blocks of 'tensor<16x256xf8E4M3FN>' and 'tensor<128x256xf8E4M3FN>'}}
  %d = lm.scaled_matmul %a, %b scales %s, %t : (tensor<16x256xf8E4M3FN>, tensor<128x256xf8E4M3FN>, tensor<2x16xf32>, tensor<1x2xf32>) -> tensor<16x128xf32> {tiles, transpose_b}
  return
}

// -----

func.func @transpose(%x: tensor<16x32xf8E4M3FN>) {
  // expected-error @below {{transposes 'tensor<16x32xf8E4M3FN>' to 'tensor<16x32xf8E4M3FN>'}}
  %y = lm.transpose %x : (tensor<16x32xf8E4M3FN>) -> tensor<16x32xf8E4M3FN>
  return
}

// -----

func.func @whole_rows(%x: tensor<16x32xbf16>) {
  // expected-error @below {{casts 'tensor<16x32xbf16>' to 'tensor<16x32xf8E4M3FN>' with scales 'tensor<32xf32>'}}
  %c, %s = lm.quantize_whole_rows %x : (tensor<16x32xbf16>) -> (tensor<16x32xf8E4M3FN>, tensor<32xf32>)
  return
}

// -----

func.func @dequantize(%x: tensor<16x32xf8E4M3FN>, %s: tensor<32xf32>) {
  // expected-error @below {{turns 'tensor<16x32xf8E4M3FN>' with scales 'tensor<32xf32>' into 'tensor<16x32xbf16>'}}
  %y = lm.dequantize %x, %s : (tensor<16x32xf8E4M3FN>, tensor<32xf32>) -> tensor<16x32xbf16>
  return
}

// -----

func.func @piece_max_abs(%x: tensor<4x8xf32>, %r: tensor<f32>) {
  // expected-error @below {{tensors}}
  %y = lm.piece_max_abs %x of %r : (tensor<4x8xf32>, tensor<f32>) -> tensor<3xf32> {starts = array<i64: 0, 5>}
  return
}

// -----

func.func @ranks_fp8_scale(%x: tensor<5xf32>) {
  // expected-error @below {{makes 2 scales of 5 values}}
  %y = lm.ranks_fp8_scale %x of f8E4M3FN : (tensor<5xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @piece_quantize(%x: tensor<4x8xf32>, %r: tensor<f32>) {
  // expected-error @below {{scales}}
  %y = lm.piece_quantize %x of %r scales %r : (tensor<4x8xf32>, tensor<f32>, tensor<f32>) -> tensor<4x8xf8E4M3FN> {starts = array<i64: 0, 5>}
  return
}

// -----

func.func @row_scales(%x: tensor<4x8xf32>) {
  // expected-error @below {{has the dtype 'bf16'; give f8E4M3FN or f8E5M2}}
  %y = lm.row_scales %x of bf16 : (tensor<4x8xf32>) -> tensor<4xbf16>
  return
}

// -----

func.func @tile_scales(%x: tensor<256x5xbf16>) {
  // expected-error @below {{makes the scales 'tensor<2x4xf32>' of 'tensor<256x5xbf16>'}}
  %y = lm.tile_scales %x : (tensor<256x5xbf16>) -> tensor<2x4xf32>
  return
}

// -----

func.func @transpose_scales(%x: tensor<5x4xf32>) {
  // expected-error @below {{transposes 'tensor<5x4xf32>' to 'tensor<3x4xf32>'}}
  %y = lm.transpose_scales %x : (tensor<5x4xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @piece_quantize_tiles(%x: tensor<4x128xf32>, %r: tensor<f32>, %s: tensor<1x4xf32>) {
  // expected-error @below {{has the scales 'tensor<1x4xf32>' for 5 blocks a row}}
  %y = lm.piece_quantize_tiles %x of %r scales %s : (tensor<4x128xf32>, tensor<f32>, tensor<1x4xf32>) -> tensor<4x128xf8E4M3FN> {columns = array<i64: 5>, starts = array<i64: 0>}
  return
}

// -----

func.func @piece_quantize_tiles_rows(%x: tensor<4x64xf32>, %r: tensor<f32>, %s: tensor<1x4xf32>) {
  // expected-error @below {{rounds 'tensor<4x64xf32>' to 'tensor<4x64xf8E4M3FN>'}}
  %y = lm.piece_quantize_tiles %x of %r scales %s : (tensor<4x64xf32>, tensor<f32>, tensor<1x4xf32>) -> tensor<4x64xf8E4M3FN> {columns = array<i64: 1>, starts = array<i64: 0>}
  return
}

// -----

func.func @piece_quantize_tiles_order(%x: tensor<4x128xf32>, %r: tensor<f32>, %s: tensor<1x4xf32>, %t: tensor<2x4xf32>) {
  // expected-error @below {{has a tensor that starts at block 500; those before it end at 512}}
  %y = lm.piece_quantize_tiles %x of %r scales %s, %t : (tensor<4x128xf32>, tensor<f32>, tensor<1x4xf32>, tensor<2x4xf32>) -> tensor<4x128xf8E4M3FN> {columns = array<i64: 4, 4>, starts = array<i64: 0, 500>}
  return
}

// -----

func.func @swiglu_quantize(%gu: tensor<128x256xbf16>) {
  // expected-error @below {{casts 'tensor<128x128xbf16>' to 'tensor<128x256xf8E4M3FN>' with scales 'tensor<2x128xf32>'}}
  %c, %s, %t, %u = lm.swiglu_quantize %gu : (tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<256x128xf8E4M3FN>, tensor<1x256xf32>)
  return
}

// -----

func.func @swiglu_grad_quantize(%d: tensor<128x256xbf16>, %gu: tensor<128x256xbf16>) {
  // expected-error @below {{has the gradient 'tensor<128x256xbf16>' for halves of 'tensor<128x256xbf16>'}}
  %c, %s, %t, %u = lm.swiglu_grad_quantize %d, %gu : (tensor<128x256xbf16>, tensor<128x256xbf16>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<256x128xf8E4M3FN>, tensor<1x256xf32>)
  return
}

// -----

func.func @norm_quantize_rows(%x: tensor<128x256xbf16>, %w: tensor<128xf32>) {
  // expected-error @below {{has the weight 'tensor<128xf32>' and the reciprocals 'tensor<128xf32>' for 'tensor<128x256xbf16>'}}
  %c, %s, %r = lm.norm_quantize_rows %x, %w eps 1.0e-05 : (tensor<128x256xbf16>, tensor<128xf32>) -> (tensor<128x256xf8E4M3FN>, tensor<2x128xf32>, tensor<128xf32>)
  return
}

// -----

func.func @norm_quantize_columns(%x: tensor<128x200xbf16>, %w: tensor<200xf32>, %r: tensor<128xf32>) {
  // expected-error @below {{casts 'tensor<128x200xbf16>' in blocks of 128}}
  %c, %s = lm.norm_quantize_columns %x, %w, %r : (tensor<128x200xbf16>, tensor<200xf32>, tensor<128xf32>) -> (tensor<200x128xf8E4M3FN>, tensor<1x200xf32>)
  return
}

// -----

func.func @reciprocal_rms(%x: tensor<128x256xbf16>) {
  // expected-error @below {{has 'tensor<256xf32>' for the rows of 'tensor<128x256xbf16>'}}
  %r = lm.reciprocal_rms %x eps 1.0e-05 : (tensor<128x256xbf16>) -> tensor<256xf32>
  return
}
