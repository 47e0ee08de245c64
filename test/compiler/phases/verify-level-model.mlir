// Ops of the model and collectives are all that functions hold.
// RUN: lmc-opt %s -split-input-file --verify-level="phase=autodiff" -verify-diagnostics
// RUN: not lmc-opt %s -split-input-file --verify-level="phase=memory" 2>&1 | grep "has no place" | FileCheck %s --check-prefix=MEMORY
// RUN: not lmc-opt %s --verify-level="phase=linking" 2>&1 | FileCheck %s --check-prefix=PHASE
// MEMORY:     error: 'kern.gemm' op has no place after the phase memory, which leaves ops of the model and collectives in functions
// MEMORY-NOT: error: 'dist.mesh'
// PHASE: there is no phase 'linking'

func.func @forward(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %y = lm.linear %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func @library(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  // expected-error @below {{'kern.gemm' op has no place after the phase autodiff, which leaves ops of the model and collectives in functions}}
  %y = kern.gemm %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

// The ranks' collectives come with differentiation.
dist.mesh @ranks(replicate = 1, shard = 1)
