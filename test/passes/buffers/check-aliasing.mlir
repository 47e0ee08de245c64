// plan-check-aliasing compares the commands with the ops on tensors, and then erases the ops.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics --plan-check-aliasing | FileCheck %s

plan.arena @state bytes 512 alignment 64 lower_bound 512
plan.arena @workspace bytes 0 alignment 64 lower_bound 0
plan.variable @x at @state[0] : tensor<64xf32> input init none
plan.variable @y at @state[256] : tensor<64xf32> input init none

// CHECK-LABEL: plan.function @move peak 0
// CHECK:         plan.copy
// CHECK-NOT:   module @tensors
plan.function @move peak 0 {
  %x = plan.variable_ref @x : !plan.slice<tensor<64xf32>>
  %y = plan.variable_ref @y : !plan.slice<tensor<64xf32>>
  plan.copy (
    x %x : tensor<64xf32>
    d %y : tensor<64xf32>
  )
}
module @tensors {
  lm.variable @x input : tensor<64xf32> init none
  lm.variable @y input : tensor<64xf32> init none
  func.func @move() {
    %x = lm.load @x : tensor<64xf32>
    lm.store %x, @y : tensor<64xf32>
    return
  }
}

// -----

plan.arena @state bytes 512 alignment 64 lower_bound 512
plan.arena @workspace bytes 0 alignment 64 lower_bound 0
plan.variable @x at @state[0] : tensor<64xf32> input init none
plan.variable @y at @state[256] : tensor<64xf32> input init none

// expected-error @+1 {{@nothing leaves the wrong value in variable @y}}
plan.function @nothing peak 0 {
}
module @tensors {
  lm.variable @x input : tensor<64xf32> init none
  lm.variable @y input : tensor<64xf32> init none
  func.func @nothing() {
    %x = lm.load @x : tensor<64xf32>
    lm.store %x, @y : tensor<64xf32>
    return
  }
}

// -----

// expected-error @+1 {{has no functions on tensors to check; plan-emit-commands runs first}}
module {
}

// -----

// The runs of a slice are as far apart as the dimension that has more than one of them says: %row and %part take the
// same bytes of @x as the place at which %part is put back.

plan.arena @state bytes 1024 alignment 64 lower_bound 1024
plan.arena @workspace bytes 0 alignment 64 lower_bound 0
plan.variable @x at @state[0] : tensor<4x5x6xf32> input init none
plan.variable @y at @state[512] : tensor<4x5x6xf32> input init none

// CHECK-LABEL: plan.function @put_back peak 0
plan.function @put_back peak 0 {
  %x = plan.variable_ref @x : !plan.slice<tensor<4x5x6xf32>>
  %y = plan.variable_ref @y : !plan.slice<tensor<4x5x6xf32>>
  plan.copy (
    x %x : tensor<4x5x6xf32>
    d %y : tensor<4x5x6xf32>
  )
}
module @tensors {
  lm.variable @x input : tensor<4x5x6xf32> init none
  lm.variable @y input : tensor<4x5x6xf32> init none
  func.func @put_back() {
    %x = lm.load @x : tensor<4x5x6xf32>
    %row = tensor.extract_slice %x[0, 2, 0] [4, 1, 6] [1, 1, 1] : tensor<4x5x6xf32> to tensor<4x1x6xf32>
    %part = tensor.extract_slice %row[0, 0, 1] [4, 1, 2] [1, 1, 1] : tensor<4x1x6xf32> to tensor<4x1x2xf32>
    %same = tensor.insert_slice %part into %x[0, 2, 1] [4, 1, 2] [1, 1, 1] : tensor<4x1x2xf32> into tensor<4x5x6xf32>
    lm.store %same, @y : tensor<4x5x6xf32>
    return
  }
}
