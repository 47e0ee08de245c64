// dist-regather gathers a weight again for each op that uses it; the first layers, as many as keep says, do not,
// and neither do those that the module lists.
// RUN: lmc-opt %s --dist-regather | FileCheck %s
// RUN: lmc-opt %s --dist-regather=keep=1 | FileCheck %s --check-prefix=KEEP
// RUN: sed 's/^module {/module attributes {dist.kept_weights = array<i64: 0>} {/' %s | lmc-opt --dist-regather | FileCheck %s --check-prefix=KEEP
// RUN: sed 's/^module {/module attributes {dist.kept_weights = array<i64: 1>} {/' %s | lmc-opt --dist-regather=keep=1 | FileCheck %s

module {
  dist.mesh @ranks(replicate = 1, shard = 2)
  lm.variable @unit.0 parameter : tensor<2x256xf32> init none
  func.func @micro() {
    %p = lm.load @unit.0 : tensor<2x256xf32>
    %all = dist.all_gather %p over @ranks shard : (tensor<2x256xf32>) -> tensor<4x256xf32> {layer = 0 : i64}
    %flat = tensor.collapse_shape %all [[0, 1]] : tensor<4x256xf32> into tensor<1024xf32>
    %a = tensor.extract_slice %flat[0] [512] [1] : tensor<1024xf32> to tensor<512xf32>
    %b = tensor.extract_slice %flat[512] [512] [1] : tensor<1024xf32> to tensor<512xf32>
    %y = lm.add %a, %b : tensor<512xf32>
    %z = lm.add %y, %b : tensor<512xf32> {backward}
    return
  }
}

// CHECK-LABEL: func.func @micro()
// CHECK:      dist.all_gather
// CHECK:      %[[FLAT:.*]] = tensor.collapse_shape
// CHECK:      lm.add
// CHECK:      %[[P:.*]] = lm.load @unit.0
// CHECK-NEXT: %[[AGAIN:.*]] = dist.all_gather %[[P]] {{.*}} {backward, layer = 0 : i64}
// CHECK-NEXT: %[[FLAT2:.*]] = tensor.collapse_shape %[[AGAIN]]
// Only what the op reads is taken from it.
// CHECK-NEXT: %[[B:.*]] = tensor.extract_slice %[[FLAT2]][512]
// CHECK-NEXT: lm.add %{{.*}}, %[[B]]

// KEEP:     dist.all_gather
// KEEP-NOT: dist.all_gather
