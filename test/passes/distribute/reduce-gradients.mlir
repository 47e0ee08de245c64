// dist-reduce-gradients sums what the micro-steps have accumulated, in the last of them.
// RUN: lmc-opt %s --dist-reduce-gradients | FileCheck %s
// RUN: lmc-opt %s --dist-reduce-gradients=payload=bf16 | FileCheck %s --check-prefix=BF16
// RUN: lmc-opt %s --dist-reduce-gradients=payload=f16 | FileCheck %s --check-prefix=F16
// RUN: not lmc-opt %s --dist-reduce-gradients=payload=i8 2>&1 | FileCheck %s --check-prefix=PAYLOAD

module attributes {dist.units = [{elements = 512 : i64, layer = 1 : i64, members = ["a.grad", "b.grad"],
                                  offsets = array<i64: 0, 256>, piece = "unit.0.grad"}]} {
  dist.mesh @ranks(replicate = 1, shard = 2)
  lm.variable @unit.0.grad gradient : tensor<1x256xf32> init zeros
  lm.variable @a.grad gradient : tensor<16x16xf32> init zeros {anonymous}
  lm.variable @b.grad gradient : tensor<256xf32> init zeros {anonymous}
  func.func @micro_first() {
    %a = lm.load @a.grad : tensor<16x16xf32>
    lm.store %a, @a.grad : tensor<16x16xf32>
    return
  }
  func.func @micro_last() {
    %b = lm.load @b.grad : tensor<256xf32>
    %b2 = lm.add %b, %b : tensor<256xf32>
    lm.store %b2, @b.grad : tensor<256xf32>
    %a = lm.load @a.grad : tensor<16x16xf32>
    %a2 = lm.add %a, %a : tensor<16x16xf32>
    lm.store %a2, @a.grad : tensor<16x16xf32>
    return
  }
}

// CHECK-NOT:  dist.units
// CHECK:      func.func @micro_first
// CHECK:        lm.store %{{.*}}, @a.grad
// CHECK:      func.func @micro_last
// CHECK:        %[[B:.*]] = lm.add
// CHECK:        %[[A:.*]] = lm.add
// CHECK:        %[[FLAT:.*]] = tensor.collapse_shape %[[A]]
// CHECK:        tensor.insert_slice %[[FLAT]] into %{{.*}}[0] [256] [1]
// CHECK:        %[[UNIT:.*]] = tensor.insert_slice %[[B]] into %{{.*}}[256] [256] [1]
// CHECK:        %[[ROWS:.*]] = tensor.expand_shape %[[UNIT]]
// CHECK:        %[[SUM:.*]] = dist.reduce_scatter %[[ROWS]] over @ranks shard : (tensor<2x256xf32>) -> tensor<1x256xf32> {backward, layer = 1 : i64}
// CHECK-NEXT:   lm.store %[[SUM]], @unit.0.grad
// CHECK-NOT:    lm.store

// BF16: dist.reduce_scatter %{{.*}} over @ranks shard : (tensor<2x256xbf16>) -> tensor<1x256xbf16>

// The ranks agree on one scale for the unit before they round it.
// F16:      %[[ROWS:.*]] = tensor.expand_shape %{{.*}} into tensor<2x256xf32>
// F16-NEXT: %[[OWN:.*]] = lm.max_abs %[[ROWS]] : (tensor<2x256xf32>) -> tensor<f32> {backward, layer = 1 : i64}
// F16-NEXT: %[[ONE:.*]] = tensor.expand_shape %[[OWN]]
// F16-NEXT: %[[ALL:.*]] = dist.all_gather %[[ONE]] over @ranks shard : (tensor<1xf32>) -> tensor<2xf32> {backward, layer = 1 : i64}
// F16-NEXT: %[[MAX:.*]] = lm.max_abs %[[ALL]] : (tensor<2xf32>) -> tensor<f32> {backward, layer = 1 : i64}
// F16-NEXT: %[[SHORT:.*]] = lm.scaled_cast %[[ROWS]], %[[MAX]] over 2 : (tensor<2x256xf32>, tensor<f32>) -> tensor<2x256xf16>
// F16-NEXT: %[[SUM:.*]] = dist.reduce_scatter %[[SHORT]] over @ranks shard : (tensor<2x256xf16>) -> tensor<1x256xf16>
// F16-NEXT: %[[WIDE:.*]] = lm.scaled_cast %[[SUM]], %[[MAX]] over 2 : (tensor<1x256xf16>, tensor<f32>) -> tensor<1x256xf32>
// F16-NEXT: lm.store %[[WIDE]], @unit.0.grad

// PAYLOAD: error: payload must be f32, bf16 or f16, not 'i8'
