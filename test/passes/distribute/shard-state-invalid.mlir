// RUN: not lmc-opt %s --dist-shard-state=shard=0 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not lmc-opt %s --dist-shard-state="shard=2 stage=params" 2>&1 | FileCheck %s --check-prefix=STAGE
// RUN: not lmc-opt %s --dist-shard-state="shard=2 stage=none" 2>&1 | FileCheck %s --check-prefix=DIVIDES
// RUN: not lmc-opt %s --dist-shard-state="shard=2 reduce=never" 2>&1 | FileCheck %s --check-prefix=REDUCE
// RUN: not lmc-opt %s --dist-shard-state="shard=2 payload=i8" 2>&1 | FileCheck %s --check-prefix=PAYLOAD
// RUN: not lmc-opt %s --dist-shard-state="shard=2 optimizer=sgd" 2>&1 | FileCheck %s --check-prefix=OPTIMIZER
// RUN: not lmc-opt %s --dist-shard-state="shard=2" 2>&1 | FileCheck %s --check-prefix=MICRO

// NONE: error: needs at least one rank along each axis
// STAGE: error: stage must be none, optimizer, gradients or weights, not 'params'
// DIVIDES: error: stage none divides nothing, so the axis shard must have one rank
// REDUCE: error: reduce must be each or last, not 'never'
// PAYLOAD: error: payload must be f32, bf16 or f16, not 'i8'
// OPTIMIZER: error: there is no optimizer 'sgd'
// MICRO: has no @micro; run lm-autodiff first
module {
}
