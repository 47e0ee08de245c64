// lm-insert-optimizer with type muon: hidden matrices are stepped by lm.muon, which lists the logical ones, and the rest by lm.adamw.
// RUN: lmc-opt %s --lm-insert-optimizer='type=muon attributes="ns_steps = 3, ns_dtype = bf16"' | FileCheck %s
// RUN: lmc-opt %s --lm-insert-optimizer='type=muon attributes="ns_steps = 3, ns_dtype = bf16"' --lm-flatten-state | FileCheck %s --check-prefix=FLAT
// RUN: not lmc-opt %s --lm-insert-optimizer='type=muon attributes=3' 2>&1 | FileCheck %s --check-prefix=TEXT
// TEXT: attributes must be those of an op, NAME = VALUE, ..., not '3'

// CHECK-DAG: lm.variable @qkv.moment1 moment1 : tensor<10x16xf32>
// CHECK-DAG: lm.variable @embed.moment2 moment2 : tensor<8x16xf32>
// CHECK-DAG: lm.variable @run.muon_lr scalar : tensor<f32> init none step_value muon_learning_rate
// CHECK-DAG: lm.variable @run.muon_momentum scalar : tensor<f32> init none setting "optimizer.muon_momentum"
// CHECK-NOT: @qkv.moment2

// CHECK-LABEL: func.func @optimizer() {
// A part without a name and columns behind a part's are padding.
// CHECK:         lm.muon {{.*}} weight_decay {{.*}} -> (tensor<10x16xf32>, tensor<10x16xf32>, tensor<10xf32>, tensor<10xf32>, tensor<10x16xbf16>)
// CHECK-SAME:    {matrices = [#lm.matrix<offset = 0, rows = 6, columns = 16, fan_in = 16>, #lm.matrix<offset = 128, rows = 2, columns = 16, fan_in = 12>], ns_dtype = bf16, ns_steps = 3 : i64}
// CHECK:         lm.muon {{.*}}{matrices = [#lm.matrix<offset = 0, rows = 16, columns = 4, fan_in = 4>], ns_dtype = bf16, ns_steps = 3 : i64}
// CHECK-COUNT-2: lm.adamw
// CHECK-NOT:     lm.muon

// Its parameters have no storage; the others of one kind share one.
// FLAT: lm.variable @down parameter : tensor<16x4xf32> init ones {hidden}
// FLAT: lm.variable @embed parameter : tensor<8x16xf32> init ones {storage = @flat.0
lm.variable @qkv parameter : tensor<10x16xf32> init none {hidden, weight_decay, parts = [#lm.part<"q", rows = 6, init = ones>, #lm.part<"", rows = 2, init = zeros>, #lm.part<"k", rows = 2, columns = 12, init = ones>]}
lm.variable @qkv.compute compute_copy : tensor<10x16xbf16> init copy_of(source = "qkv") {parameter = "qkv"}
lm.variable @qkv.grad gradient : tensor<10x16xf32> init zeros {parameter = "qkv"}
lm.variable @down parameter : tensor<16x4xf32> init ones {hidden}
lm.variable @down.grad gradient : tensor<16x4xf32> init zeros {parameter = "down"}
lm.variable @embed parameter : tensor<8x16xf32> init ones
lm.variable @embed.grad gradient : tensor<8x16xf32> init zeros {parameter = "embed"}
lm.variable @norm parameter : tensor<16xf32> init ones
lm.variable @norm.grad gradient : tensor<16xf32> init zeros {parameter = "norm"}
