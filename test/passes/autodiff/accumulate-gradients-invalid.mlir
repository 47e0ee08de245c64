// lm-accumulate-gradients needs the @micro that lm-autodiff makes, and at least one step.
// RUN: not lmc-opt %s -split-input-file --lm-accumulate-gradients=steps=2 2>&1 | FileCheck %s --check-prefix=MICRO
// RUN: not lmc-opt %s -split-input-file --lm-accumulate-gradients=steps=0 2>&1 | FileCheck %s --check-prefix=STEPS
// RUN: not lmc-opt %s -split-input-file --lm-accumulate-gradients=steps=-3 2>&1 | FileCheck %s --check-prefix=NEGATIVE

// MICRO: [[#@LINE+1]]:1: error: 'builtin.module' op has no @micro; run lm-autodiff first
module {
  func.func @forward() {
    return
  }
}

// -----

// MICRO-NOT: error:
// STEPS: [[#@LINE+2]]:1: error: 'builtin.module' op needs at least one gradient accumulation step, got 0
// NEGATIVE: [[#@LINE+1]]:1: error: 'builtin.module' op needs at least one gradient accumulation step, got -3
module {
  func.func @micro() {
    return
  }
}
