// Without reuse every value but a view has bytes of its own: copies take the place of sharing.
// RUN: lmc-opt %s --plan-assign-buffers="reuse=false" --plan-pack-arenas="reuse=false" --plan-emit-commands --plan-check-aliasing | FileCheck %s --check-prefixes=CHECK,OWN
// RUN: lmc-opt %s --plan-assign-buffers --plan-pack-arenas --plan-emit-commands --plan-check-aliasing | FileCheck %s --check-prefixes=CHECK,SHARED

// OWN:          plan.arena @workspace bytes 768
// SHARED:       plan.arena @workspace bytes 256
// CHECK-LABEL:  plan.function @f

// OWN:          %[[A:.*]] = plan.slice @workspace[
// OWN:          plan.launch @negate {{.*}}(
// OWN-NEXT:       in {{ *}}%
// OWN-NEXT:       out {{ *}}%[[A]] :
// OWN-NEXT:     )
// OWN:          %[[B:.*]] = plan.slice @workspace[
// OWN:          plan.launch @negate {{.*}}(
// OWN-NEXT:       in {{ *}}%[[A]] :
// OWN-NEXT:       out {{ *}}%[[B]] :
// OWN-NEXT:     )
// OWN:          plan.copy {{.*}}(
// OWN-NEXT:       x {{ *}}%[[R:.*]] :
// OWN-NEXT:       d {{ *}}%[[SUM:.*]] :
// OWN-NEXT:     )
// OWN:          plan.gemm {accumulate} (
// OWN-NEXT:       a {{ *}}%
// OWN-NEXT:       b {{ *}}%
// OWN-NEXT:       d {{ *}}%[[SUM]] :
// OWN-NEXT:     )
// OWN:          plan.copy {{.*}}(
// OWN-NEXT:       x {{ *}}%[[SUM]] :
// OWN-NEXT:       d {{ *}}%[[R]] :
// OWN-NEXT:     )

// SHARED:       %[[A:.*]] = plan.slice @workspace[
// SHARED:       plan.launch @negate {{.*}}(
// SHARED-NEXT:    in {{ *}}%
// SHARED-NEXT:    out {{ *}}%[[A]] :
// SHARED-NEXT:  )
// SHARED:       plan.launch @negate {{.*}}(
// SHARED-NEXT:    in {{ *}}%[[A]] :
// SHARED-NEXT:    out {{ *}}%[[A]] :
// SHARED-NEXT:  )
// SHARED-NOT:   plan.copy
#all = affine_map<(i, j) -> (i, j)>
kern.kernel @negate elementwise {
^bb0(%x: tensor<8x8xf32>):
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<8x8xf32>
  kern.yield %y : tensor<8x8xf32>
}
lm.variable @x input : tensor<8x8xf32> init none
lm.variable @r scalar : tensor<8x8xf32> init none
func.func @f() {
  %x = lm.load @x : tensor<8x8xf32>
  %r = lm.load @r : tensor<8x8xf32>
  %a = kern.launch @negate(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %b = kern.launch @negate(%a) : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %c = kern.gemm %b, %x acc %r : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %c, @r : tensor<8x8xf32>
  return
}
