// lm-flatten-state: one storage and one AdamW for parameters that are treated alike.
// RUN: lmc-opt %s --lm-insert-optimizer --lm-flatten-state | FileCheck %s
// RUN: lmc-opt %s --lm-insert-optimizer --lm-flatten-state | FileCheck %s --check-prefix=STATE

// Members begin at multiples of 128 elements; what belongs to a storage has no parameter.
// STATE-DAG: lm.variable @flat.0 parameter : tensor<2x4096xf32> init none {anonymous}
// STATE-DAG: lm.variable @flat.0.grad gradient : tensor<2x4096xf32> init none {anonymous}
// STATE-DAG: lm.variable @flat.0.moment1 moment1 : tensor<2x4096xf32> init none {anonymous}
// STATE-DAG: lm.variable @flat.0.moment2 moment2 : tensor<2x4096xf32> init none {anonymous}
// STATE-DAG: lm.variable @flat.0.compute compute_copy : tensor<2x4096xbf16> init none {anonymous}
// STATE-DAG: lm.variable @flat.1 parameter : tensor<1x4096xf32> init none {anonymous}
// STATE-DAG: lm.variable @w parameter : tensor<9x8xf32> init ones {storage = @flat.0, storage_offset = 0 : i64, weight_decay}
// STATE-DAG: lm.variable @w.grad gradient : tensor<9x8xf32> init zeros {parameter = "w", storage = @flat.0.grad, storage_offset = 0 : i64}
// STATE-DAG: lm.variable @v parameter : tensor<64x64xf32> init ones {storage = @flat.0, storage_offset = 128 : i64, weight_decay}
// STATE-DAG: lm.variable @v.compute compute_copy : tensor<64x64xbf16> init copy_of(source = "v") {parameter = "v", storage = @flat.0.compute, storage_offset = 128 : i64}
// STATE-DAG: lm.variable @v.moment2 moment2 : tensor<64x64xf32> init zeros {parameter = "v", storage = @flat.0.moment2, storage_offset = 128 : i64}
// STATE-DAG: lm.variable @g parameter : tensor<8xf32> init ones {storage = @flat.1, storage_offset = 0 : i64}

// CHECK-LABEL: func.func @optimizer() {
// CHECK-DAG:     %[[D1:.*]] = lm.load @flat.1.grad
// CHECK-DAG:     %[[D0:.*]] = lm.load @flat.0.grad
// CHECK:         %[[NORM:.*]] = lm.global_norm %[[D0]], %[[D1]] : (tensor<2x4096xf32>, tensor<1x4096xf32>) -> tensor<f32>
// CHECK:         %[[DECAY:.*]] = lm.load @run.weight_decay
// CHECK:         %[[W:.*]] = lm.load @flat.0 :
// CHECK:         %[[M:.*]] = lm.load @flat.0.moment1
// CHECK:         %[[V:.*]] = lm.load @flat.0.moment2
// CHECK:         %[[NW:.*]], %[[NM:.*]], %[[NV:.*]], %[[U0:.*]], %[[P0:.*]], %[[C:.*]] = lm.adamw %[[W]], %[[D0]], %[[M]], %[[V]] norm %[[NORM]] {{.*}} weight_decay %[[DECAY]]
// CHECK-NEXT:    lm.store %[[NW]], @flat.0 :
// CHECK-NEXT:    lm.store %[[NM]], @flat.0.moment1
// CHECK-NEXT:    lm.store %[[NV]], @flat.0.moment2
// CHECK-NEXT:    lm.store %[[C]], @flat.0.compute
// CHECK:         %{{.*}}, %{{.*}}, %{{.*}}, %[[U1:.*]], %[[P1:.*]] = lm.adamw %{{.*}}, %[[D1]],
// CHECK-NOT:     weight_decay
// CHECK-NOT:     lm.adamw
// CHECK-NOT:     @w
// CHECK:         lm.norm_of_parts %[[U0]], %[[U1]] : (tensor<2xf32>, tensor<1xf32>)
// CHECK:         lm.norm_of_parts %[[P0]], %[[P1]] : (tensor<2xf32>, tensor<1xf32>)
lm.variable @w parameter : tensor<9x8xf32> init ones {weight_decay}
lm.variable @w.compute compute_copy : tensor<9x8xbf16> init copy_of(source = "w") {parameter = "w"}
lm.variable @w.grad gradient : tensor<9x8xf32> init zeros {parameter = "w"}
lm.variable @g parameter : tensor<8xf32> init ones
lm.variable @g.grad gradient : tensor<8xf32> init zeros {parameter = "g"}
lm.variable @v parameter : tensor<64x64xf32> init ones {weight_decay}
lm.variable @v.compute compute_copy : tensor<64x64xbf16> init copy_of(source = "v") {parameter = "v"}
lm.variable @v.grad gradient : tensor<64x64xf32> init zeros {parameter = "v"}
