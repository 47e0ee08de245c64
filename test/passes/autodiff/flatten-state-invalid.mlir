// lm-flatten-state needs the optimizer.
// RUN: lmc-opt %s -verify-diagnostics --lm-flatten-state

// expected-error @+1 {{has no @optimizer; run lm-insert-optimizer first}}
module {}
