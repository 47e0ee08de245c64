// plan-assign-buffers writes as attributes which tensors share bytes and how long each buffer lives.
// RUN: lmc-opt %s -split-input-file --plan-assign-buffers | FileCheck %s
// RUN: lmc-opt %s -split-input-file --plan-assign-buffers="reuse=false" | FileCheck %s --check-prefix=OWN

#id = affine_map<(i) -> (i)>
kern.kernel @twice elementwise {
^bb0(%x: tensor<64xf32>):
  %e = tensor.empty() : tensor<64xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.addf %a, %a : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  kern.yield %y : tensor<64xf32>
}
lm.variable @x input : tensor<64xf32> init none
lm.variable @y scalar : tensor<64xf32> init none

// The first result has a buffer of its own, from the op that computes it (1) to the op that reads
// it (2). The second result is computed in the bytes of the variable that it is stored to.
// CHECK-LABEL: func.func @chain() attributes {plan.buffers = [
// CHECK-SAME:    #plan.buffer<bytes = 256, {{.*}}variable = "x">, #plan.buffer<bytes = 256, {{.*}}variable = "y">
// CHECK-SAME:    #plan.buffer<bytes = 256, first = 1, last = 2>
// CHECK:         lm.load @x : tensor<64xf32> {plan.views = [#plan.view<buffer = 0>]}
// CHECK:         kern.launch @twice{{.*}} {plan.views = [#plan.view<buffer = 2>]}
// CHECK:         kern.launch @twice{{.*}} {plan.views = [#plan.view<buffer = 1>]}
// CHECK-NOT:     plan.copies
// CHECK:         return

// Without reuse, the second result is copied to the variable at the end.
// OWN-LABEL: func.func @chain()
// OWN:         return {plan.copies = [#plan.copy<from = <buffer = 3>, to = <buffer = 1>, type = tensor<64xf32>>]}
func.func @chain() {
  %x = lm.load @x : tensor<64xf32>
  %a = kern.launch @twice(%x) : (tensor<64xf32>) -> tensor<64xf32>
  %b = kern.launch @twice(%a) : (tensor<64xf32>) -> tensor<64xf32>
  lm.store %b, @y : tensor<64xf32>
  return
}

// -----

// Rows of a tensor are a view of its buffer without a pitch; columns are a view with a pitch.
// CHECK-LABEL: func.func @parts()
// CHECK:         tensor.extract_slice %{{.*}}[4, 0]{{.*}} {plan.views = [#plan.view<buffer = 0, offset = 128>]}
// CHECK:         tensor.extract_slice %{{.*}}[0, 4]{{.*}} {plan.views = [#plan.view<buffer = 0, offset = 16, rows = 8, pitch = 32>]}
lm.variable @q input : tensor<8x8xf32> init none
func.func @parts() {
  %q = lm.load @q : tensor<8x8xf32>
  %r = tensor.extract_slice %q[4, 0] [4, 8] [1, 1] : tensor<8x8xf32> to tensor<4x8xf32>
  %c = tensor.extract_slice %q[0, 4] [8, 4] [1, 1] : tensor<8x8xf32> to tensor<8x4xf32>
  return
}
