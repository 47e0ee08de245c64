// A cast to an 8-bit float is one instruction of sm_89 and later, and so is one from it; 16 bytes of bf16 are 8 bytes of codes.
// REQUIRES: nvcc
// RUN: lmc-translate --kern-to-cuda %s | FileCheck %s
// RUN: rm -rf %t && mkdir -p %t && ln -s %root/compiler/targets/cuda/device %t/lmc && lmc-translate --kern-to-cuda %s > %t/all.cu
// RUN: cd %t && for arch in sm_89 sm_90a sm_100; do nvcc -arch=$arch -std=c++17 -fmad=false -I . -cubin -Xptxas -v -o all.cubin all.cu || exit 1; done 2>&1 | FileCheck %s --check-prefix=ARCH --implicit-check-not=warning --implicit-check-not='{{[1-9][0-9]*}} bytes spill'
// ARCH-DAG: 'lmc_quantize' for 'sm_89'
// ARCH-DAG: 'lmc_quantize' for 'sm_90a'
// ARCH-DAG: 'lmc_quantize' for 'sm_100'
// ARCH-DAG: 'lmc_dequantize' for 'sm_89'
// ARCH-DAG: 'lmc_dequantize' for 'sm_90a'
// ARCH-DAG: 'lmc_dequantize' for 'sm_100'
// RUN: cd %t && nvcc -arch=sm_90a -std=c++17 -fmad=false -I . -ptx -o all.ptx all.cu && FileCheck %s --check-prefix=PTX --input-file=all.ptx
// PTX:       .entry lmc_quantize(
// PTX:       ld.global.v4.u32
// PTX:       cvt.rn.satfinite.e4m3x2.f32
// PTX:       st.global.v2.u32
// PTX:       ret;
// PTX:       .entry lmc_dequantize(
// PTX:       ld.global.v2.u32
// PTX:       cvt.rn.f16x2.e4m3x2
// PTX:       st.global.v4.u32
// PTX:       ret;

// CHECK:      y0 = e4m3(x0 * (1 / x1))
// CHECK:      lmc_quantize(const bf16 *x0, const float *x1, e4m3 *y0)
// CHECK:      toE4M3(
#all = affine_map<(i, j) -> (i, j)>
#none = affine_map<(i, j) -> ()>
kern.kernel @quantize elementwise attributes {source_ops = ["lm.quantize"]} {
^bb0(%x: tensor<4096x2048xbf16>, %scale: tensor<f32>):
  %e = tensor.empty() : tensor<4096x2048xf8E4M3FN>
  %y = linalg.generic {indexing_maps = [#all, #none, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %scale : tensor<4096x2048xbf16>, tensor<f32>) outs(%e : tensor<4096x2048xf8E4M3FN>) {
  ^bb0(%a: bf16, %s: f32, %o: f8E4M3FN):
    %wide = arith.extf %a : bf16 to f32
    %one = arith.constant 1.0 : f32
    %inverse = arith.divf %one, %s : f32
    %scaled = arith.mulf %wide, %inverse : f32
    %code = arith.truncf %scaled : f32 to f8E4M3FN
    linalg.yield %code : f8E4M3FN
  } -> tensor<4096x2048xf8E4M3FN>
  kern.yield %y : tensor<4096x2048xf8E4M3FN>
}

// CHECK:      y0 = bf16(x0 * x1)
// CHECK:      lmc_dequantize(const e4m3 *x0, const float *x1, bf16 *y0)
// CHECK:      toFloat(
#rows = affine_map<(i, j) -> (i)>
kern.kernel @dequantize elementwise attributes {source_ops = ["lm.dequantize"]} {
^bb0(%x: tensor<4096x2048xf8E4M3FN>, %scales: tensor<4096xf32>):
  %e = tensor.empty() : tensor<4096x2048xbf16>
  %y = linalg.generic {indexing_maps = [#all, #rows, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %scales : tensor<4096x2048xf8E4M3FN>, tensor<4096xf32>) outs(%e : tensor<4096x2048xbf16>) {
  ^bb0(%a: f8E4M3FN, %s: f32, %o: bf16):
    %wide = arith.extf %a : f8E4M3FN to f32
    %scaled = arith.mulf %wide, %s : f32
    %short = arith.truncf %scaled : f32 to bf16
    linalg.yield %short : bf16
  } -> tensor<4096x2048xbf16>
  kern.yield %y : tensor<4096x2048xbf16>
}
