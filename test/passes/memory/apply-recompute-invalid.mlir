// RUN: lmc-opt %s --split-input-file --verify-diagnostics --lm-apply-recompute
// RUN: not lmc-opt %s --split-input-file --lm-apply-recompute=mode=some 2>&1 | FileCheck %s --check-prefix=MODE
// RUN: not lmc-opt %s --split-input-file "--lm-apply-recompute=mode=block stride=0" 2>&1 | FileCheck %s --check-prefix=STRIDE

// MODE: error: has no recompute mode 'some'; choose none, activation, full, block or keep-all
// STRIDE: error: needs a recompute stride of at least 1, got 0

module {}

// -----

// expected-error @+1 {{has no lm.recompute_options as lm-analyze-recompute writes it; run that pass first}}
module attributes {lm.recompute_choice = array<i64>} {}

// -----

// expected-error @+1 {{has no lm.recompute_options as lm-analyze-recompute writes it; run that pass first}}
module attributes {lm.recompute_options = {layer = {layers = array<i64: 0>}}} {}

// -----

// expected-error @+1 {{has a lm.recompute_choice that is not an array<i64: ...>}}
module attributes {lm.recompute_choice = [0]} {}

// -----

// expected-error @+1 {{has lm.recompute_choice for 2 layers, but calls 1; give one option for each layer, first to last}}
module attributes {lm.recompute_choice = array<i64: 0, 0>, lm.recompute_options = {layer = {
    forward_flops = 0.0, layers = array<i64: 0>, options = [
      {flops = 0.0, kept_bytes = 0, name = "none", ops = [], recomputed = array<i64>, seconds = 0.0}]}}} {
  func.func private @layer(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    return %x : tensor<4x8xf32>
  }
  func.func private @layer.forward(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    return %x : tensor<4x8xf32>
  }
  func.func @micro_first(%x: tensor<4x8xf32>) {
    %y = call @layer.forward(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return
  }
}

// -----

// expected-error @+1 {{has no recompute option 1 for layer 0: @layer has options 0 to 0}}
module attributes {lm.recompute_choice = array<i64: 1>, lm.recompute_options = {layer = {
    forward_flops = 0.0, layers = array<i64: 0>, options = [
      {flops = 0.0, kept_bytes = 0, name = "none", ops = [], recomputed = array<i64>, seconds = 0.0}]}}} {
  func.func private @layer(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    return %x : tensor<4x8xf32>
  }
  func.func private @layer.forward(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    return %x : tensor<4x8xf32>
  }
  func.func @micro_first(%x: tensor<4x8xf32>) {
    %y = call @layer.forward(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return
  }
}

// -----

// expected-error @+1 {{has no recompute option 'none' for @layer; run lm-analyze-recompute, which makes one}}
module attributes {lm.recompute_options = {layer = {
    forward_flops = 0.0, layers = array<i64: 0>, options = [
      {flops = 0.0, kept_bytes = 0, name = "mine", ops = [], recomputed = array<i64>, seconds = 0.0}]}}} {
  func.func private @layer(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    return %x : tensor<4x8xf32>
  }
  func.func private @layer.forward(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    return %x : tensor<4x8xf32>
  }
  func.func @micro_first(%x: tensor<4x8xf32>) {
    %y = call @layer.forward(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return
  }
}

// -----

// expected-error @+1 {{has recompute options for other layers than it calls; run lm-analyze-recompute on the module as it is}}
module attributes {lm.recompute_options = {layer = {
    forward_flops = 0.0, layers = array<i64: 0, 1>, options = [
      {flops = 0.0, kept_bytes = 0, name = "none", ops = [], recomputed = array<i64>, seconds = 0.0}]}}} {
  func.func private @layer(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    return %x : tensor<4x8xf32>
  }
  func.func private @layer.forward(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    return %x : tensor<4x8xf32>
  }
  func.func @micro_first(%x: tensor<4x8xf32>) {
    %y = call @layer.forward(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return
  }
}

// -----

module attributes {lm.recompute_options = {layer = {
    forward_flops = 0.0, layers = array<i64: 0>, options = [
      {flops = 0.0, kept_bytes = 0, name = "none", ops = [], recomputed = array<i64: 1>, seconds = 0.0}]}}} {
  func.func private @layer(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    return %x : tensor<4x8xf32>
  }
  // expected-error @+1 {{has no op 1, which recompute option 'none' names; run lm-analyze-recompute on the module as it is}}
  func.func private @layer.forward(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %y = lm.swiglu %x, %x : tensor<4x8xf32>
    return %y : tensor<4x8xf32>
  }
  func.func @micro_first(%x: tensor<4x8xf32>) {
    %y = call @layer.forward(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return
  }
}

// -----

module attributes {lm.recompute_options = {layer = {
    forward_flops = 0.0, layers = array<i64: 0>, options = [
      {flops = 0.0, kept_bytes = 0, name = "none", ops = [], recomputed = array<i64: 0>, seconds = 0.0}]}}} {
  dist.mesh @ranks(replicate = 1, shard = 2)
  func.func private @layer(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    return %x : tensor<4x8xf32>
  }
  func.func private @layer.forward(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    // expected-error @+1 {{runs once only, but recompute option 'none' runs it again; leave it out of the option}}
    %y = dist.all_reduce %x over @ranks shard : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %y : tensor<4x8xf32>
  }
  func.func @micro_first(%x: tensor<4x8xf32>) {
    %y = call @layer.forward(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return
  }
}

// -----

func.func private @layer(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}
func.func private @layer.forward(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}
func.func @micro_first(%x: tensor<4x8xf32>) {
  %y = call @layer.forward(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}
// expected-error @+1 {{calls other layers than @micro_first; recompute is decided per layer, so all micro-steps must call the same forward halves in the same order}}
func.func @micro_last(%x: tensor<4x8xf32>) {
  %y = call @layer.forward(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %z = call @layer.forward(%y) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func private @layer(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}
// expected-error @+1 {{is not the forward half of @layer: it needs a body that returns the layer's results first; lm-autodiff makes it}}
func.func private @layer.forward(%x: tensor<4x8xf32>) -> tensor<4x8xf32>
func.func @micro_first(%x: tensor<4x8xf32>) {
  %y = call @layer.forward(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

// Without the layer itself nothing says that @layer.forward is half of one.
// expected-error @+1 {{has recompute options for other layers than it calls; run lm-analyze-recompute on the module as it is}}
module attributes {lm.recompute_choice = array<i64: 0>, lm.recompute_options = {layer = {
    forward_flops = 0.0, layers = array<i64: 0>, options = [
      {flops = 0.0, kept_bytes = 0, name = "none", ops = [], recomputed = array<i64>, seconds = 0.0}]}}} {
  func.func private @layer.forward(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    return %x : tensor<4x8xf32>
  }
  func.func @micro_first(%x: tensor<4x8xf32>) {
    %y = call @layer.forward(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return
  }
}
