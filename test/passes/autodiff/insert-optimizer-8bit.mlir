// lm-insert-optimizer with type adamw8bit: codes and scales for matrices of whole blocks of 256 elements, f32 moments for the rest.
// RUN: lmc-opt %s --lm-insert-optimizer=type=adamw8bit | FileCheck %s
// RUN: lmc-opt %s --lm-insert-optimizer=type=adamw8bit | FileCheck %s --check-prefix=STATE

// STATE-DAG: lm.variable @w.moment1 moment1 : tensor<8x64xi8> init zeros {parameter = "w"}
// STATE-DAG: lm.variable @w.moment1_scale moment1_scale : tensor<2xf32> init zeros {parameter = "w"}
// STATE-DAG: lm.variable @w.moment2 moment2 : tensor<8x64xi8> init zeros {parameter = "w"}
// STATE-DAG: lm.variable @w.moment2_scale moment2_scale : tensor<2xf32> init zeros {parameter = "w"}

// A vector, a matrix of 300 elements, and one whose parts are no whole blocks though it is.
// STATE-DAG: lm.variable @g.moment1 moment1 : tensor<256xf32>
// STATE-DAG: lm.variable @odd.moment2 moment2 : tensor<10x30xf32>
// STATE-DAG: lm.variable @merged.moment1 moment1 : tensor<8x64xf32>
// STATE-NOT: @{{g|odd|merged}}.moment{{[12]}}_scale

// CHECK-LABEL: func.func @optimizer() {
// CHECK-DAG:     %[[DW:.*]] = lm.load @w.grad
// CHECK:         %[[NORM:.*]] = lm.global_norm %[[DW]],
// CHECK:         %[[W:.*]] = lm.load @w :
// CHECK:         %[[M:.*]] = lm.load @w.moment1 :
// CHECK:         %[[MS:.*]] = lm.load @w.moment1_scale
// CHECK:         %[[V:.*]] = lm.load @w.moment2 :
// CHECK:         %[[VS:.*]] = lm.load @w.moment2_scale
// CHECK:         %[[NW:[^ ]*]], %[[NM:[^ ]*]], %[[NMS:[^ ]*]], %[[NV:[^ ]*]], %[[NVS:[^ ]*]], %[[U:[^ ]*]], %[[P:[^ ]*]], %[[C:[^ ]*]] = lm.adamw8bit %[[W]], %[[DW]], %[[M]] scale %[[MS]], %[[V]] scale %[[VS]] norm %[[NORM]]
// CHECK-SAME:      weight_decay
// CHECK-SAME:      -> (tensor<8x64xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<8x64xi8>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<8x64xbf16>)
// CHECK-NEXT:    lm.store %[[NW]], @w :
// CHECK-NEXT:    lm.store %[[NM]], @w.moment1 :
// CHECK-NEXT:    lm.store %[[NMS]], @w.moment1_scale
// CHECK-NEXT:    lm.store %[[NV]], @w.moment2 :
// CHECK-NEXT:    lm.store %[[NVS]], @w.moment2_scale
// CHECK-NEXT:    lm.store %[[C]], @w.compute
// CHECK-COUNT-3: lm.adamw %
// CHECK-NOT:     lm.adamw8bit
// CHECK:         lm.norm_of_parts %[[U]],
// CHECK:         lm.norm_of_parts %[[P]],
lm.variable @w parameter : tensor<8x64xf32> init ones {weight_decay}
lm.variable @w.compute compute_copy : tensor<8x64xbf16> init copy_of(source = "w") {parameter = "w"}
lm.variable @w.grad gradient : tensor<8x64xf32> init zeros {parameter = "w"}
lm.variable @g parameter : tensor<256xf32> init ones
lm.variable @g.grad gradient : tensor<256xf32> init zeros {parameter = "g"}
lm.variable @odd parameter : tensor<10x30xf32> init ones {weight_decay}
lm.variable @odd.grad gradient : tensor<10x30xf32> init zeros {parameter = "odd"}
lm.variable @merged parameter : tensor<8x64xf32> init none {weight_decay, parts = [#lm.part<"q", rows = 6, init = ones>, #lm.part<"k", rows = 2, init = ones>]}
lm.variable @merged.grad gradient : tensor<8x64xf32> init zeros {parameter = "merged"}
