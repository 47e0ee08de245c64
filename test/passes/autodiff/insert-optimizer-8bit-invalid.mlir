// What lm-insert-optimizer=type=adamw8bit refuses.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics --lm-insert-optimizer=type=adamw8bit
// RUN: not lmc-opt %s --lm-insert-optimizer=type=adam 2>&1 | FileCheck %s

// CHECK: type must be adamw or adamw8bit or muon, not 'adam'

// expected-error @+1 {{optimizer.type adamw8bit keeps moments of f32 matrices in 8 bits whose elements are a multiple of 256, and this model has none; use adamw}}
module {
  lm.variable @w parameter : tensor<4x8xf32> init zeros
  lm.variable @w.grad gradient : tensor<4x8xf32> init zeros {parameter = "w"}
}
