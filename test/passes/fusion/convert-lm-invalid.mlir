// kern-convert-lm refuses what an earlier pass should have resolved.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics --kern-convert-lm

lm.variable @w.grad gradient : tensor<8xf32> init zeros
func.func @micro(%dw: tensor<8xf32>) {
  // expected-error @+1 {{'lm.accumulate' op has no kernel; lm-accumulate-gradients and the other lm passes must run before kern-convert-lm}}
  lm.accumulate %dw, @w.grad : tensor<8xf32>
  return
}
