// Every verifier error of the dist dialect.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{'dist.mesh' op needs positive axis sizes}}
dist.mesh @ranks(replicate = 0, shard = 4)

// -----

// expected-error @+1 {{'dist.mesh' op needs positive axis sizes}}
dist.mesh @ranks(replicate = 1, shard = -1)

// -----

func.func @noMesh(%x: tensor<8xf32>) {
  // expected-error @+1 {{'dist.all_reduce' op refers to @ranks, which is no dist.mesh}}
  %0 = dist.all_reduce %x over @ranks shard : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

dist.mesh @ranks(replicate = 1, shard = 4)
func.func @noAxis(%x: tensor<8xf32>) {
  // expected-error @+1 {{custom op 'dist.all_reduce' expected string or keyword containing one of the following enum values for attribute 'axis' [replicate, shard, expert, expert_shard]}}
  %0 = dist.all_reduce %x over @ranks pipeline : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

dist.mesh @ranks(replicate = 1, shard = 4)
func.func @gatherExtent(%x: tensor<8xf32>) {
  // expected-error @+1 {{'dist.all_gather' op cannot turn 'tensor<8xf32>' into 'tensor<16xf32>' over 4 ranks}}
  %0 = dist.all_gather %x over @ranks shard : (tensor<8xf32>) -> tensor<16xf32>
  return
}

// -----

dist.mesh @ranks(replicate = 1, shard = 4)
func.func @scatterExtent(%x: tensor<6xf32>) {
  // expected-error @+1 {{'dist.reduce_scatter' op cannot turn 'tensor<6xf32>' into 'tensor<1xf32>' over 4 ranks}}
  %0 = dist.reduce_scatter %x over @ranks shard : (tensor<6xf32>) -> tensor<1xf32>
  return
}

// -----

dist.mesh @ranks(replicate = 1, shard = 4)
func.func @innerExtent(%x: tensor<8x2xf32>) {
  // expected-error @+1 {{'dist.all_gather' op cannot turn 'tensor<8x2xf32>' into 'tensor<32x3xf32>' over 4 ranks}}
  %0 = dist.all_gather %x over @ranks shard : (tensor<8x2xf32>) -> tensor<32x3xf32>
  return
}

// -----

dist.mesh @ranks(replicate = 1, shard = 4)
func.func @dtype(%x: tensor<8xf32>) {
  // expected-error @+1 {{'dist.reduce_scatter' op cannot turn 'tensor<8xf32>' into 'tensor<2xbf16>' over 4 ranks}}
  %0 = dist.reduce_scatter %x over @ranks shard : (tensor<8xf32>) -> tensor<2xbf16>
  return
}

// -----

dist.mesh @ranks(replicate = 1, shard = 4)
func.func @rank(%x: tensor<f32>) {
  // expected-error @+1 {{'dist.all_gather' op cannot turn 'tensor<f32>' into 'tensor<f32>' over 4 ranks}}
  %0 = dist.all_gather %x over @ranks shard : (tensor<f32>) -> tensor<f32>
  return
}

// -----

dist.mesh @ranks(replicate = 1, shard = 4)
func.func @neverEnds(%x: tensor<8xf32>) {
  // expected-error @+1 {{'dist.all_gather' op is async, so exactly one dist.wait or async collective takes its result}}
  %0 = dist.all_gather %x over @ranks shard : (tensor<8xf32>) -> tensor<32xf32> {async}
  return
}

// -----

dist.mesh @ranks(replicate = 1, shard = 4)
func.func @readTooEarly(%x: tensor<8xf32>) {
  // expected-error @+1 {{'dist.all_gather' op is async, and 'tensor.expand_shape' reads its result without a dist.wait}}
  %0 = dist.all_gather %x over @ranks shard : (tensor<8xf32>) -> tensor<32xf32> {async}
  %1 = tensor.expand_shape %0 [[0, 1]] output_shape [8, 4] : tensor<32xf32> into tensor<8x4xf32>
  return
}

// -----

dist.mesh @ranks(replicate = 1, shard = 4)
func.func @takenTooEarly(%x: tensor<8xf32>) {
  // expected-error @+1 {{'dist.reduce_scatter' op is async, and 'dist.all_reduce' reads its result without a dist.wait}}
  %0 = dist.reduce_scatter %x over @ranks shard : (tensor<8xf32>) -> tensor<2xf32> {async}
  %1 = dist.all_reduce %0 over @ranks shard : (tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @nothingStarted(%x: tensor<8xf32>) {
  // expected-error @+1 {{'dist.wait' op waits for what no async collective has started}}
  %0 = dist.wait %x : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

dist.mesh @ranks(replicate = 1, shard = 4)
func.func @forgottenInput(%x: tensor<8xf32>) {
  %0 = dist.all_gather %x over @ranks shard : (tensor<8xf32>) -> tensor<32xf32> {async}
  // expected-error @+1 {{'dist.wait' op does not name the input of 'dist.all_gather', which it ends}}
  %1 = dist.wait %0 : (tensor<32xf32>) -> tensor<32xf32>
  return
}

// -----

// expected-error @+1 {{'dist.mesh' op has 3 groups of experts, which do not divide 4 ranks}}
dist.mesh @ranks(replicate = 1, shard = 4, experts = 3)
