// The model of analyze-recompute.mlir, its layers with options of their own.
// RUN: sed 's/^module {/module attributes {lm.recompute_choice = array<i64: 3, 6>} {/' %S/analyze-recompute.mlir | lmc-opt --lm-autodiff --lm-accumulate-gradients=steps=3 --cse "--lm-analyze-recompute=flops-per-second=1000 bytes-per-second=1024" --lm-apply-recompute | FileCheck %s

// CHECK: module attributes {lm.recompute = "auto"

// The halves that lm-autodiff made have no calls left.
// CHECK-NOT: @layer.forward(
// CHECK-NOT: @layer.backward(
// CHECK-NOT: @layer.backward.accumulate(

// One variant of each half per option, whichever micro-steps use it.
// CHECK-DAG: func.func private @layer.forward.block(
// CHECK-DAG: func.func private @layer.forward.hull3(

// "hull3" keeps k and the residual: the MLP's side is made first, and what attention needs
// only after the MLP's gradients are there.
// CHECK-LABEL: func.func private @layer.backward.hull3(
// CHECK:       lm.rms_norm
// CHECK-NEXT:  lm.linear
// CHECK-NEXT:  lm.linear
// CHECK-NEXT:  lm.swiglu
// CHECK-NOT:   lm.attention
// CHECK:       lm.swiglu_grad
// CHECK-NOT:   lm.linear
// CHECK:       lm.rms_norm_grad
// CHECK:       lm.rms_norm
// CHECK:       lm.linear
// CHECK:       lm.attention
// CHECK:       lm.attention_grad

// "block": of the ops that make what the backward half reads, each runs once and right before
// its first reader. The down projection (16x32) is not run again.
// CHECK-LABEL: func.func private @layer.backward.block(
// CHECK:       lm.matmul {{.*}} -> tensor<8x32xf32> {backward}
// CHECK:       lm.rms_norm
// CHECK-COUNT-3: lm.linear
// CHECK:       %[[A:.*]], %{{.*}} = lm.attention
// CHECK-NEXT:  lm.linear %[[A]]
// CHECK-NEXT:  lm.add
// CHECK-NEXT:  lm.rms_norm
// CHECK-NEXT:  lm.linear
// CHECK-NEXT:  lm.linear
// CHECK-NEXT:  lm.swiglu
// CHECK-NOT:   lm.linear
// CHECK-NOT:   lm.swiglu {{.*}}
// CHECK:       return
