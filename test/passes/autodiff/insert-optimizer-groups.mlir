// lm-insert-optimizer with parameter groups: a group has a learning rate of its own and, if it gives one, a weight decay; with f32
// moments adamw8bit leaves its parameters to adamw. lm-flatten-state keeps groups apart.
// RUN: lmc-opt %s --lm-insert-optimizer=type=adamw8bit | FileCheck %s
// RUN: lmc-opt %s --lm-insert-optimizer=type=adamw8bit --lm-flatten-state | FileCheck %s --check-prefix=FLAT
// RUN: lmc-opt %s --lm-insert-optimizer=type=muon | FileCheck %s --check-prefix=MUON
// RUN: lmc-opt %s --lm-insert-optimizer=type=adamw8bit | FileCheck %s --check-prefix=NONE
// NONE-NOT: @run.weight_decay.slow

// CHECK-DAG: lm.variable @run.lr scalar : tensor<f32> init none step_value learning_rate{{$}}
// CHECK-DAG: lm.variable @run.lr.exact scalar : tensor<f32> init none step_value group_learning_rate {group = #lm.group<name = "exact", own_decay = true, f32_moments = true>}
// CHECK-DAG: lm.variable @run.lr.slow scalar : tensor<f32> init none step_value group_learning_rate {group = #lm.group<name = "slow">}
// CHECK-DAG: lm.variable @run.weight_decay scalar : tensor<f32> init none setting "optimizer.weight_decay"
// CHECK-DAG: lm.variable @run.weight_decay.exact scalar : tensor<f32> init none setting "optimizer.group.exact.weight_decay"
// CHECK-DAG: lm.variable @embed.moment1 moment1 : tensor<8x64xf32>
// CHECK-DAG: lm.variable @w.moment1 moment1 : tensor<8x64xi8>
// CHECK-DAG: lm.variable @slow.moment1 moment1 : tensor<8x64xi8>
// CHECK-LABEL: func.func @optimizer() {
// CHECK-DAG:     %[[LR:.*]] = lm.load @run.lr :
// CHECK-DAG:     %[[DECAY:.*]] = lm.load @run.weight_decay :
// CHECK-DAG:     %[[EXACT_LR:.*]] = lm.load @run.lr.exact
// CHECK-DAG:     %[[EXACT_DECAY:.*]] = lm.load @run.weight_decay.exact
// CHECK-DAG:     %[[SLOW_LR:.*]] = lm.load @run.lr.slow
// CHECK:         lm.adamw {{.*}} lr %[[EXACT_LR]] {{.*}} weight_decay %[[EXACT_DECAY]]
// CHECK:         lm.adamw8bit {{.*}} lr %[[LR]] {{.*}} weight_decay %[[DECAY]]
// CHECK:         lm.adamw {{.*}} lr %[[EXACT_LR]] {{.*}} weight_decay %[[EXACT_DECAY]]
// A group that gives no weight decay decays as if it were none.
// CHECK:         lm.adamw8bit {{.*}} lr %[[SLOW_LR]] {{.*}} weight_decay %[[DECAY]]
// CHECK:         lm.adamw %
// CHECK-SAME:      lr %[[SLOW_LR]]
// CHECK-NOT:       weight_decay
// CHECK-SAME:      bias_corrections

// The embedding and the norm of one group share a storage.
// FLAT:     lm.variable @embed parameter {{.*}} storage = @flat.0
// FLAT:     lm.variable @w parameter {{.*}} storage = @flat.1
// FLAT:     lm.variable @norm parameter {{.*}} storage = @flat.0
// FLAT:     lm.variable @slow parameter {{.*}} storage = @flat.2
// FLAT:     lm.variable @slow.bias parameter {{.*}} storage = @flat.3

// MUON-DAG: lm.variable @run.muon_lr scalar : tensor<f32> init none step_value muon_learning_rate{{$}}
// MUON-DAG: lm.variable @run.muon_lr.slow scalar : tensor<f32> init none step_value group_muon_learning_rate {group = #lm.group<name = "slow">}
// MUON-DAG: %[[RATE:.*]] = lm.load @run.muon_lr :
// MUON-DAG: %[[SLOW:.*]] = lm.load @run.muon_lr.slow
// MUON:     lm.muon {{.*}} lr %[[RATE]]
// MUON:     lm.muon {{.*}} lr %[[SLOW]]
lm.variable @embed parameter : tensor<8x64xf32> init ones {weight_decay, group = #lm.group<name = "exact", own_decay = true, f32_moments = true>}
lm.variable @embed.grad gradient : tensor<8x64xf32> init zeros {parameter = "embed"}
lm.variable @w parameter : tensor<8x64xf32> init ones {hidden, weight_decay}
lm.variable @w.grad gradient : tensor<8x64xf32> init zeros {parameter = "w"}
lm.variable @norm parameter : tensor<64xf32> init ones {weight_decay, group = #lm.group<name = "exact", own_decay = true, f32_moments = true>}
lm.variable @norm.grad gradient : tensor<64xf32> init zeros {parameter = "norm"}
lm.variable @slow parameter : tensor<8x64xf32> init ones {hidden, weight_decay, group = #lm.group<name = "slow">}
lm.variable @slow.grad gradient : tensor<8x64xf32> init zeros {parameter = "slow"}
lm.variable @slow.bias parameter : tensor<8xf32> init zeros {group = #lm.group<name = "slow">}
lm.variable @slow.bias.grad gradient : tensor<8xf32> init zeros {parameter = "slow.bias"}
