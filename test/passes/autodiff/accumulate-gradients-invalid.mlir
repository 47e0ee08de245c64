// lm-accumulate-gradients needs the @micro that lm-autodiff makes.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics --lm-accumulate-gradients=steps=2

// expected-error @+1 {{'builtin.module' op has no @micro; run lm-autodiff first}}
module {
  func.func @forward() {
    return
  }
}
