// dist-check-reductions refuses what counts for all ranks and is of one.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics --dist-check-reductions

// Sums over both axes: in one micro-step at once, in the other added to the sum of the first.

module {
  dist.mesh @ranks(replicate = 2, shard = 2)
  lm.variable @batch input : tensor<4x256xf32> init none
  lm.variable @w.grad gradient : tensor<2x256xf32> init zeros
  lm.variable @run.loss scalar : tensor<f32> init none
  lm.variable @run.grad_norm scalar : tensor<f32> init none
  func.func @micro_first() {
    %g = lm.load @batch : tensor<4x256xf32>
    %r = dist.reduce_scatter %g over @ranks shard : (tensor<4x256xf32>) -> tensor<2x256xf32>
    %s = dist.all_reduce %r over @ranks replicate : (tensor<2x256xf32>) -> tensor<2x256xf32>
    lm.store %s, @w.grad : tensor<2x256xf32>
    return
  }
  func.func @micro() {
    %old = lm.load @w.grad : tensor<2x256xf32>
    %new = lm.add %old, %old : tensor<2x256xf32>
    lm.store %new, @w.grad : tensor<2x256xf32>
    return
  }
  func.func @micro_last() {
    %old = lm.load @w.grad : tensor<2x256xf32>
    %g = lm.load @batch : tensor<4x256xf32>
    %r = dist.reduce_scatter %g over @ranks shard : (tensor<4x256xf32>) -> tensor<2x256xf32>
    %s = dist.all_reduce %r over @ranks replicate : (tensor<2x256xf32>) -> tensor<2x256xf32>
    %new = lm.add %old, %s : tensor<2x256xf32>
    lm.store %new, @w.grad : tensor<2x256xf32>
    return
  }
  func.func @optimizer() {
    %g = lm.load @w.grad : tensor<2x256xf32>
    %own = lm.global_norm %g : (tensor<2x256xf32>) -> tensor<f32>
    %one = tensor.expand_shape %own [] output_shape [1] : tensor<f32> into tensor<1xf32>
    %all = dist.all_gather %one over @ranks shard : (tensor<1xf32>) -> tensor<2xf32>
    %norm = lm.global_norm %all : (tensor<2xf32>) -> tensor<f32>
    lm.store %norm, @run.grad_norm : tensor<f32>
    %loss = lm.load @run.loss : tensor<f32>
    %l = tensor.expand_shape %loss [] output_shape [1] : tensor<f32> into tensor<1xf32>
    %l1 = dist.all_reduce %l over @ranks shard : (tensor<1xf32>) -> tensor<1xf32>
    %l2 = dist.all_reduce %l1 over @ranks replicate : (tensor<1xf32>) -> tensor<1xf32>
    %sum = tensor.collapse_shape %l2 [] : tensor<1xf32> into tensor<f32>
    lm.store %sum, @run.loss : tensor<f32>
    return
  }
}

// -----

// The reduce-scatter sums over the ranks of a node only.

module {
  dist.mesh @ranks(replicate = 2, shard = 2)
  lm.variable @batch input : tensor<4x256xf32> init none
  lm.variable @w.grad gradient : tensor<2x256xf32> init zeros
  func.func @micro_first() {
    %g = lm.load @batch : tensor<4x256xf32>
    %r = dist.reduce_scatter %g over @ranks shard : (tensor<4x256xf32>) -> tensor<2x256xf32>
    // expected-error @+1 {{'lm.store' op stores to @w.grad what is not summed over the axis replicate}}
    lm.store %r, @w.grad : tensor<2x256xf32>
    return
  }
  func.func @optimizer() {
    %g = lm.load @w.grad : tensor<2x256xf32>
    return
  }
}

// -----

// The last micro-step adds its sum to what the first one left, which is of one rank.

module {
  dist.mesh @ranks(replicate = 2, shard = 1)
  lm.variable @batch input : tensor<4x256xf32> init none
  lm.variable @w.grad gradient : tensor<4x256xf32> init zeros
  func.func @micro_first() {
    %g = lm.load @batch : tensor<4x256xf32>
    // expected-error @+1 {{'lm.store' op stores to @w.grad what is not summed over the axis replicate}}
    lm.store %g, @w.grad : tensor<4x256xf32>
    return
  }
  func.func @micro_last() {
    %old = lm.load @w.grad : tensor<4x256xf32>
    %g = lm.load @batch : tensor<4x256xf32>
    %s = dist.all_reduce %g over @ranks replicate : (tensor<4x256xf32>) -> tensor<4x256xf32>
    %new = lm.add %old, %s : tensor<4x256xf32>
    lm.store %new, @w.grad : tensor<4x256xf32>
    return
  }
  func.func @optimizer() {
    %g = lm.load @w.grad : tensor<4x256xf32>
    return
  }
}

// -----

// The gradients of both micro-steps are added up first, and then summed over ranks.

module {
  dist.mesh @ranks(replicate = 2, shard = 1)
  lm.variable @batch input : tensor<4x256xf32> init none
  lm.variable @flat gradient : tensor<4x256xf32> init none {anonymous}
  lm.variable @w.grad gradient : tensor<4x256xf32> init zeros {storage = @flat, storage_offset = 0 : i64}
  func.func @micro_first() {
    %g = lm.load @batch : tensor<4x256xf32>
    lm.store %g, @w.grad : tensor<4x256xf32>
    return
  }
  func.func @micro_last() {
    %old = lm.load @w.grad : tensor<4x256xf32>
    %g = lm.load @batch : tensor<4x256xf32>
    %new = lm.add %old, %g : tensor<4x256xf32>
    %s = dist.all_reduce %new over @ranks replicate : (tensor<4x256xf32>) -> tensor<4x256xf32>
    lm.store %s, @w.grad : tensor<4x256xf32>
    return
  }
  func.func @optimizer() {
    %g = lm.load @flat : tensor<4x256xf32>
    return
  }
}

// -----

// A sum over the ranks of a sum over the ranks.

module {
  dist.mesh @ranks(replicate = 2, shard = 2)
  lm.variable @batch input : tensor<4x256xf32> init none
  lm.variable @w.grad gradient : tensor<2x256xf32> init zeros
  func.func @micro_first() {
    %g = lm.load @batch : tensor<4x256xf32>
    %a = dist.all_reduce %g over @ranks replicate : (tensor<4x256xf32>) -> tensor<4x256xf32>
    %r = dist.reduce_scatter %a over @ranks shard : (tensor<4x256xf32>) -> tensor<2x256xf32>
    %s = dist.all_reduce %r over @ranks replicate : (tensor<2x256xf32>) -> tensor<2x256xf32>
    // expected-error @+1 {{'lm.store' op stores to @w.grad what is summed more than once over the axis replicate}}
    lm.store %s, @w.grad : tensor<2x256xf32>
    return
  }
  func.func @optimizer() {
    %g = lm.load @w.grad : tensor<2x256xf32>
    return
  }
}

// -----

// The first micro-step keeps its sum over the ranks, and the last one sums this again.

module {
  dist.mesh @ranks(replicate = 2, shard = 1)
  lm.variable @batch input : tensor<4x256xf32> init none
  lm.variable @own.grad gradient : tensor<4x256xf32> init zeros
  lm.variable @w.grad gradient : tensor<4x256xf32> init zeros
  func.func @micro_first() {
    %g = lm.load @batch : tensor<4x256xf32>
    %s = dist.all_reduce %g over @ranks replicate : (tensor<4x256xf32>) -> tensor<4x256xf32>
    // expected-error @+1 {{'lm.store' op stores to @own.grad what is summed more than once over the axis replicate}}
    lm.store %s, @own.grad : tensor<4x256xf32>
    return
  }
  func.func @micro_last() {
    %old = lm.load @own.grad : tensor<4x256xf32>
    %g = lm.load @batch : tensor<4x256xf32>
    %new = lm.add %old, %g : tensor<4x256xf32>
    %s = dist.all_reduce %new over @ranks replicate : (tensor<4x256xf32>) -> tensor<4x256xf32>
    lm.store %s, @w.grad : tensor<4x256xf32>
    return
  }
  func.func @optimizer() {
    %g = lm.load @w.grad : tensor<4x256xf32>
    return
  }
}

// -----

// The scale of gradients in f16 is that of the ranks along both axes.

module {
  dist.mesh @ranks(replicate = 2, shard = 2)
  lm.variable @batch input : tensor<4x256xf32> init none
  lm.variable @w.grad gradient : tensor<2x256xf32> init zeros
  func.func @micro_first() {
    %g = lm.load @batch : tensor<4x256xf32>
    %own = lm.max_abs %g : (tensor<4x256xf32>) -> tensor<f32>
    %one = tensor.expand_shape %own [] output_shape [1] : tensor<f32> into tensor<1xf32>
    %some = dist.all_gather %one over @ranks replicate : (tensor<1xf32>) -> tensor<2xf32>
    %max = lm.max_abs %some : (tensor<2xf32>) -> tensor<f32>
    %h = lm.scaled_cast %g, %max over 4 : (tensor<4x256xf32>, tensor<f32>) -> tensor<4x256xf16>
    %r = dist.reduce_scatter %h over @ranks shard : (tensor<4x256xf16>) -> tensor<2x256xf16>
    %s = dist.all_reduce %r over @ranks replicate : (tensor<2x256xf16>) -> tensor<2x256xf16>
    // expected-error @+1 {{'lm.scaled_cast' op has a scale that ranks along the axis shard do not share}}
    %w = lm.scaled_cast %s, %max over 4 : (tensor<2x256xf16>, tensor<f32>) -> tensor<2x256xf32>
    lm.store %w, @w.grad : tensor<2x256xf32>
    return
  }
  func.func @optimizer() {
    %g = lm.load @w.grad : tensor<2x256xf32>
    return
  }
}

// -----

module {
  dist.mesh @ranks(replicate = 2, shard = 1)
  // expected-error @+1 {{'lm.variable' op is a gradient that the optimizer reads, and @micro_first stores nothing to it}}
  lm.variable @w.grad gradient : tensor<4x256xf32> init zeros
  func.func @micro_first() {
    return
  }
  func.func @optimizer() {
    %g = lm.load @w.grad : tensor<4x256xf32>
    return
  }
}

// -----

module {
  dist.mesh @ranks(replicate = 1, shard = 2)
  lm.variable @w parameter : tensor<2x256xf32> init none
  lm.variable @run.param_norm scalar : tensor<f32> init none
  func.func @optimizer() {
    %w = lm.load @w : tensor<2x256xf32>
    // expected-error @+1 {{'lm.global_norm' op is of a rank's own piece, and 'lm.store' reads it without the norms of the other ranks}}
    %norm = lm.global_norm %w : (tensor<2x256xf32>) -> tensor<f32>
    lm.store %norm, @run.param_norm : tensor<f32>
    return
  }
}

// -----

module {
  dist.mesh @ranks(replicate = 1, shard = 2)
  lm.variable @run.eval_loss scalar : tensor<f32> init none
  lm.variable @own scalar : tensor<f32> init none
  func.func @eval() {
    %own = lm.load @own : tensor<f32>
    // expected-error @+1 {{'lm.store' op stores to @run.eval_loss what is not summed over the axis shard}}
    lm.store %own, @run.eval_loss : tensor<f32>
    return
  }
  func.func @optimizer() {
    return
  }
}

// -----

// expected-error @+1 {{has gradients that are not summed over ranks; run dist-reduce-gradients first}}
module attributes {dist.units = []} {
  dist.mesh @ranks(replicate = 1, shard = 2)
}

// -----

// expected-error @+1 {{'builtin.module' op has no mesh; run dist-shard-state first}}
module {
}

// -----

// One rank has nothing to sum.

module {
  dist.mesh @ranks(replicate = 1, shard = 1)
  lm.variable @batch input : tensor<4x256xf32> init none
  lm.variable @w.grad gradient : tensor<4x256xf32> init zeros
  func.func @micro_first() {
    %g = lm.load @batch : tensor<4x256xf32>
    lm.store %g, @w.grad : tensor<4x256xf32>
    return
  }
  func.func @optimizer() {
    %g = lm.load @w.grad : tensor<4x256xf32>
    return
  }
}
