// lm-store-codes rounds what the forward half of the layer of analyze-recompute.mlir keeps.
// RUN: lmc-opt %S/analyze-recompute.mlir --lm-autodiff --lm-store-codes | FileCheck %s
// RUN: lmc-opt %S/analyze-recompute.mlir --lm-autodiff --lm-store-codes --lm-accumulate-gradients=steps=3 --cse "--lm-analyze-recompute=flops-per-second=1000 bytes-per-second=1024" | FileCheck %s --check-prefix=OPTIONS
// RUN: lmc-opt %S/analyze-recompute.mlir --lm-autodiff --lm-store-codes --lm-accumulate-gradients=steps=3 --cse --lm-apply-recompute | FileCheck %s --check-prefix=APPLIED

// Attention reads the rounded q, k and v. The other ops of the forward half read what they read before.
// CHECK-LABEL: func.func private @layer.forward(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: tensor<8x16xf32>,
// CHECK:         %[[H:.*]] = lm.rms_norm %[[X]],
// CHECK:         %[[Q:.*]] = lm.rope
// CHECK-NEXT:    %[[QC:.*]], %[[QS:.*]] = lm.quantize_whole_rows %[[Q]] : (tensor<8x16xf32>) -> (tensor<8x16xf8E4M3FN>, tensor<8xf32>)
// CHECK-NEXT:    %[[QR:.*]] = lm.dequantize %[[QC]], %[[QS]] : (tensor<8x16xf8E4M3FN>, tensor<8xf32>) -> tensor<8x16xf32>
// CHECK:         %[[K:.*]] = lm.rope
// CHECK:         %[[KR:.*]] = lm.dequantize {{.*}} -> tensor<8x8xf32>
// CHECK:         %[[VR:.*]] = lm.dequantize {{.*}} -> tensor<8x8xf32>
// CHECK-NEXT:    %[[A:.*]], %[[LSE:.*]] = lm.attention %[[QR]], %[[KR]], %[[VR]] :
// CHECK:         %[[AR:.*]] = lm.dequantize
// CHECK-NEXT:    %[[O:.*]] = lm.linear %[[A]],
// CHECK-NEXT:    %[[X1:.*]] = lm.add %[[X]], %[[O]]
// CHECK:         %[[X1R:.*]] = lm.dequantize
// CHECK-NEXT:    %[[H1:.*]] = lm.rms_norm %[[X1]],
// CHECK-NEXT:    %[[H1R:.*]] = lm.rms_norm %[[X1R]],
// CHECK-NEXT:    %[[G:.*]] = lm.linear %[[H1]],
// CHECK:         %[[GR:.*]] = lm.dequantize
// CHECK-NEXT:    %[[U:.*]] = lm.linear %[[H1]],
// CHECK:         %[[UR:.*]] = lm.dequantize
// CHECK-NEXT:    %[[S:.*]] = lm.swiglu %[[G]], %[[U]]
// CHECK-NEXT:    %[[SR:.*]] = lm.swiglu %[[GR]], %[[UR]]
// CHECK-NEXT:    %[[D:.*]] = lm.linear %[[S]],
// CHECK-NEXT:    %[[Y:.*]] = lm.add %[[X1]], %[[D]]
// CHECK-NEXT:    return %[[Y]], %[[SR]], %[[GR]], %[[UR]], %[[H1R]], %[[X1R]], %[[AR]], %[[QR]], %[[KR]], %[[VR]], %[[LSE]], %[[H]] :

// Kept in 8 bits: q 128, k and v 64 each, attention's result 128, the residual 128, gate and up 256 each, and 7 times 32 bytes of
// scales; in f32: 64 bytes of attention's statistics. No option keeps what is made of codes.
// OPTIONS:      kept_bytes = 1312 : i64, name = "none",
// "full" makes gate and up again, and their codes.
// OPTIONS:      kept_bytes = 1088 : i64, name = "full", ops = [{{.*}}"gate", {{.*}}"up",
// OPTIONS-NOT:  name = "keep2"

// The backward half gets codes.
// APPLIED-LABEL: func.func private @layer.backward.none(
// APPLIED-SAME:    tensor<8x32xf8E4M3FN>
// APPLIED:         lm.dequantize {{.*}} -> tensor<8x32xf32>
// APPLIED:         lm.swiglu_grad
// APPLIED:         lm.dequantize
// APPLIED:         lm.rms_norm_grad
// APPLIED:         lm.attention_grad
