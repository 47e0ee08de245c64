// lm-insert-optimizer needs the gradients that lm-autodiff declares.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics --lm-insert-optimizer

// expected-error @+1 {{'builtin.module' op has no parameter with a gradient; run lm-autodiff first}}
module {
  lm.variable @w parameter : tensor<4x8xf32> init zeros
}
