// lm-flatten-state with moments in 8 bits: scales have a storage of 16 for each row of 4096, and members lie in it where their blocks are. A parameter with f32 moments has a storage of its own kind.
// RUN: lmc-opt %s --lm-insert-optimizer=type=adamw8bit --lm-flatten-state | FileCheck %s
// RUN: lmc-opt %s --lm-insert-optimizer=type=adamw8bit --lm-flatten-state | FileCheck %s --check-prefix=STATE

// STATE-DAG: lm.variable @flat.0 parameter : tensor<2x4096xf32> init none {anonymous}
// STATE-DAG: lm.variable @flat.0.moment1 moment1 : tensor<2x4096xi8> init none {anonymous}
// STATE-DAG: lm.variable @flat.0.moment1_scale moment1_scale : tensor<2x16xf32> init none {anonymous}
// STATE-DAG: lm.variable @flat.0.moment2_scale moment2_scale : tensor<2x16xf32> init none {anonymous}
// STATE-DAG: lm.variable @w.moment2 moment2 : tensor<12x64xi8> init zeros {parameter = "w", storage = @flat.0.moment2, storage_offset = 0 : i64}
// STATE-DAG: lm.variable @v parameter : tensor<64x64xf32> init ones {storage = @flat.0, storage_offset = 768 : i64, weight_decay}
// STATE-DAG: lm.variable @v.moment1 moment1 : tensor<64x64xi8> init zeros {parameter = "v", storage = @flat.0.moment1, storage_offset = 768 : i64}
// STATE-DAG: lm.variable @v.moment1_scale moment1_scale : tensor<16xf32> init zeros {parameter = "v", storage = @flat.0.moment1_scale, storage_offset = 3 : i64}
// STATE-DAG: lm.variable @v.moment2_scale moment2_scale : tensor<16xf32> init zeros {parameter = "v", storage = @flat.0.moment2_scale, storage_offset = 3 : i64}
// STATE-DAG: lm.variable @odd.moment1 moment1 : tensor<10x30xf32> init zeros {parameter = "odd", storage = @flat.1.moment1, storage_offset = 0 : i64}

// CHECK-LABEL: func.func @optimizer() {
// CHECK:         %[[W:.*]] = lm.load @flat.0 :
// CHECK:         %[[M:.*]] = lm.load @flat.0.moment1 :
// CHECK:         %[[MS:.*]] = lm.load @flat.0.moment1_scale
// CHECK:         %[[V:.*]] = lm.load @flat.0.moment2 :
// CHECK:         %[[VS:.*]] = lm.load @flat.0.moment2_scale
// CHECK:         %[[NW:[^ ]*]], %[[NM:[^ ]*]], %[[NMS:[^ ]*]], %[[NV:[^ ]*]], %[[NVS:[^ ]*]], %[[U0:[^ ]*]], %[[P0:[^ ]*]] = lm.adamw8bit %[[W]], %{{.*}}, %[[M]] scale %[[MS]], %[[V]] scale %[[VS]]
// CHECK-SAME:      -> (tensor<2x4096xf32>, tensor<2x4096xi8>, tensor<2x16xf32>, tensor<2x4096xi8>, tensor<2x16xf32>, tensor<32xf32>, tensor<32xf32>)
// CHECK-NEXT:    lm.store %[[NW]], @flat.0 :
// CHECK-NEXT:    lm.store %[[NM]], @flat.0.moment1 :
// CHECK-NEXT:    lm.store %[[NMS]], @flat.0.moment1_scale
// CHECK-NEXT:    lm.store %[[NV]], @flat.0.moment2 :
// CHECK-NEXT:    lm.store %[[NVS]], @flat.0.moment2_scale
// CHECK-NOT:     lm.adamw8bit
// CHECK:         lm.adamw {{.*}} weight_decay
// CHECK:         lm.norm_of_parts %[[U0]], %{{.*}} : (tensor<32xf32>, tensor<1xf32>)
// CHECK:         lm.norm_of_parts %[[P0]], %{{.*}} : (tensor<32xf32>, tensor<1xf32>)
lm.variable @w parameter : tensor<12x64xf32> init ones {weight_decay}
lm.variable @w.grad gradient : tensor<12x64xf32> init zeros {parameter = "w"}
lm.variable @odd parameter : tensor<10x30xf32> init ones {weight_decay}
lm.variable @odd.grad gradient : tensor<10x30xf32> init zeros {parameter = "odd"}
lm.variable @v parameter : tensor<64x64xf32> init ones {weight_decay}
lm.variable @v.grad gradient : tensor<64x64xf32> init zeros {parameter = "v"}
