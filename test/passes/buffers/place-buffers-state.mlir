// Parts of a vector that are stored to neighbours in a storage are computed there.
// RUN: lmc-opt %s --verify-each=false --plan-assign-buffers --plan-pack-arenas --plan-emit-commands --plan-check-aliasing | FileCheck %s

dist.mesh @ranks(replicate = 2, shard = 1)
lm.variable @x input : tensor<8x8xf32> init none
lm.variable @few input : tensor<2x1xf32> init none
lm.variable @column input : tensor<64x1xf32> init none
lm.variable @seen scalar : tensor<8x8xf32> init none
lm.variable @g gradient : tensor<4x64xf32> init none {anonymous}
lm.variable @a gradient : tensor<8x8xf32> init zeros {storage = @g, storage_offset = 64 : i64}
lm.variable @b gradient : tensor<8x8xf32> init zeros {storage = @g, storage_offset = 128 : i64}

// The products, their sums over ranks and the gradients are the same bytes.
// CHECK-LABEL: plan.function @first peak 0
// CHECK-NOT:     plan.copy
// CHECK:         plan.gemm
// CHECK:         d {{.*}} writes  @g[256], 256 bytes
// CHECK:         plan.gemm
// CHECK:         d {{.*}} writes  @g[512], 256 bytes
// CHECK:         plan.all_reduce
// CHECK:         d {{.*}} adds to @g[256], 512 bytes
// CHECK:         plan.wait
// CHECK-NOT:     plan.copy
func.func @first() {
  %x = lm.load @x : tensor<8x8xf32>
  %da = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %db = kern.gemm %x, %da : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %e = tensor.empty() : tensor<128xf32>
  %fa = tensor.collapse_shape %da [[0, 1]] : tensor<8x8xf32> into tensor<64xf32>
  %0 = tensor.insert_slice %fa into %e[0] [64] [1] : tensor<64xf32> into tensor<128xf32>
  %fb = tensor.collapse_shape %db [[0, 1]] : tensor<8x8xf32> into tensor<64xf32>
  %1 = tensor.insert_slice %fb into %0[64] [64] [1] : tensor<64xf32> into tensor<128xf32>
  %2 = tensor.expand_shape %1 [[0, 1]] output_shape [2, 64] : tensor<128xf32> into tensor<2x64xf32>
  %started = dist.all_reduce %2 over @ranks replicate : (tensor<2x64xf32>) -> tensor<2x64xf32> {async}
  %s = dist.wait %started : (tensor<2x64xf32>) -> tensor<2x64xf32>
  %3 = tensor.collapse_shape %s [[0, 1]] : tensor<2x64xf32> into tensor<128xf32>
  %4 = tensor.extract_slice %3[0] [64] [1] : tensor<128xf32> to tensor<64xf32>
  %5 = tensor.expand_shape %4 [[0, 1]] output_shape [8, 8] : tensor<64xf32> into tensor<8x8xf32>
  lm.store %5, @a : tensor<8x8xf32>
  %6 = tensor.extract_slice %3[64] [64] [1] : tensor<128xf32> to tensor<64xf32>
  %7 = tensor.expand_shape %6 [[0, 1]] output_shape [8, 8] : tensor<64xf32> into tensor<8x8xf32>
  lm.store %7, @b : tensor<8x8xf32>
  return
}

// Products that are added to the gradients of earlier micro-steps are added in place, too.
// CHECK-LABEL: plan.function @last peak 0
// CHECK-NOT:     plan.copy
// CHECK:         plan.gemm {accumulate}
// CHECK:         d {{.*}} adds to @g[256], 256 bytes
// CHECK:         plan.gemm {accumulate}
// CHECK:         d {{.*}} adds to @g[512], 256 bytes
// CHECK:         plan.all_reduce
// CHECK:         d {{.*}} adds to @g[256], 512 bytes
// CHECK-NOT:     plan.copy
func.func @last() {
  %x = lm.load @x : tensor<8x8xf32>
  %a = lm.load @a : tensor<8x8xf32>
  %b = lm.load @b : tensor<8x8xf32>
  %da = kern.gemm %x, %x acc %a : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %db = kern.gemm %x, %x acc %b : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %e = tensor.empty() : tensor<128xf32>
  %fa = tensor.collapse_shape %da [[0, 1]] : tensor<8x8xf32> into tensor<64xf32>
  %0 = tensor.insert_slice %fa into %e[0] [64] [1] : tensor<64xf32> into tensor<128xf32>
  %fb = tensor.collapse_shape %db [[0, 1]] : tensor<8x8xf32> into tensor<64xf32>
  %1 = tensor.insert_slice %fb into %0[64] [64] [1] : tensor<64xf32> into tensor<128xf32>
  %2 = tensor.expand_shape %1 [[0, 1]] output_shape [2, 64] : tensor<128xf32> into tensor<2x64xf32>
  %s = dist.all_reduce %2 over @ranks replicate : (tensor<2x64xf32>) -> tensor<2x64xf32>
  %3 = tensor.collapse_shape %s [[0, 1]] : tensor<2x64xf32> into tensor<128xf32>
  %4 = tensor.extract_slice %3[0] [64] [1] : tensor<128xf32> to tensor<64xf32>
  %5 = tensor.expand_shape %4 [[0, 1]] output_shape [8, 8] : tensor<64xf32> into tensor<8x8xf32>
  lm.store %5, @a : tensor<8x8xf32>
  %6 = tensor.extract_slice %3[64] [64] [1] : tensor<128xf32> to tensor<64xf32>
  %7 = tensor.expand_shape %6 [[0, 1]] output_shape [8, 8] : tensor<64xf32> into tensor<8x8xf32>
  lm.store %7, @b : tensor<8x8xf32>
  return
}

// One command that makes the vector writes it there.
// CHECK-LABEL: plan.function @one_command peak 0
// CHECK:         plan.gemm
// CHECK:         d {{.*}} writes  @g[256], 512 bytes
// CHECK-NOT:     plan.copy
func.func @one_command() {
  %few = lm.load @few : tensor<2x1xf32>
  %column = lm.load @column : tensor<64x1xf32>
  %s = kern.gemm %few, %column : (tensor<2x1xf32>, tensor<64x1xf32>) -> tensor<2x64xf32> {transpose_b}
  %3 = tensor.collapse_shape %s [[0, 1]] : tensor<2x64xf32> into tensor<128xf32>
  %4 = tensor.extract_slice %3[0] [64] [1] : tensor<128xf32> to tensor<64xf32>
  %5 = tensor.expand_shape %4 [[0, 1]] output_shape [8, 8] : tensor<64xf32> into tensor<8x8xf32>
  lm.store %5, @a : tensor<8x8xf32>
  %6 = tensor.extract_slice %3[64] [64] [1] : tensor<128xf32> to tensor<64xf32>
  %7 = tensor.expand_shape %6 [[0, 1]] output_shape [8, 8] : tensor<64xf32> into tensor<8x8xf32>
  lm.store %7, @b : tensor<8x8xf32>
  return
}

// An op that reads the old contents of @a after the vector is begun forbids it.
// CHECK-LABEL: plan.function @read_later
// CHECK:         plan.all_reduce
// CHECK:         d {{.*}} adds to @workspace
// CHECK:         plan.gemm
// CHECK:         a {{.*}} reads   @a[0], 256 bytes
// CHECK:         plan.copy
// CHECK:         d {{.*}} writes  @a[0], 256 bytes
// CHECK:         plan.copy
// CHECK:         d {{.*}} writes  @b[0], 256 bytes
func.func @read_later() {
  %x = lm.load @x : tensor<8x8xf32>
  %a = lm.load @a : tensor<8x8xf32>
  %da = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %db = kern.gemm %x, %da : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %e = tensor.empty() : tensor<128xf32>
  %fa = tensor.collapse_shape %da [[0, 1]] : tensor<8x8xf32> into tensor<64xf32>
  %0 = tensor.insert_slice %fa into %e[0] [64] [1] : tensor<64xf32> into tensor<128xf32>
  %fb = tensor.collapse_shape %db [[0, 1]] : tensor<8x8xf32> into tensor<64xf32>
  %1 = tensor.insert_slice %fb into %0[64] [64] [1] : tensor<64xf32> into tensor<128xf32>
  %2 = tensor.expand_shape %1 [[0, 1]] output_shape [2, 64] : tensor<128xf32> into tensor<2x64xf32>
  %s = dist.all_reduce %2 over @ranks replicate : (tensor<2x64xf32>) -> tensor<2x64xf32>
  %y = kern.gemm %a, %a : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %y, @seen : tensor<8x8xf32>
  %3 = tensor.collapse_shape %s [[0, 1]] : tensor<2x64xf32> into tensor<128xf32>
  %4 = tensor.extract_slice %3[0] [64] [1] : tensor<128xf32> to tensor<64xf32>
  %5 = tensor.expand_shape %4 [[0, 1]] output_shape [8, 8] : tensor<64xf32> into tensor<8x8xf32>
  lm.store %5, @a : tensor<8x8xf32>
  %6 = tensor.extract_slice %3[64] [64] [1] : tensor<128xf32> to tensor<64xf32>
  %7 = tensor.expand_shape %6 [[0, 1]] output_shape [8, 8] : tensor<64xf32> into tensor<8x8xf32>
  lm.store %7, @b : tensor<8x8xf32>
  return
}

// Parts in another order than their variables are copied.
// CHECK-LABEL: plan.function @other_order
// CHECK:         plan.all_reduce
// CHECK:         d {{.*}} adds to @workspace
// CHECK-COUNT-2: plan.copy
func.func @other_order() {
  %x = lm.load @x : tensor<8x8xf32>
  %da = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %db = kern.gemm %x, %da : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %e = tensor.empty() : tensor<128xf32>
  %fa = tensor.collapse_shape %da [[0, 1]] : tensor<8x8xf32> into tensor<64xf32>
  %0 = tensor.insert_slice %fa into %e[0] [64] [1] : tensor<64xf32> into tensor<128xf32>
  %fb = tensor.collapse_shape %db [[0, 1]] : tensor<8x8xf32> into tensor<64xf32>
  %1 = tensor.insert_slice %fb into %0[64] [64] [1] : tensor<64xf32> into tensor<128xf32>
  %2 = tensor.expand_shape %1 [[0, 1]] output_shape [2, 64] : tensor<128xf32> into tensor<2x64xf32>
  %s = dist.all_reduce %2 over @ranks replicate : (tensor<2x64xf32>) -> tensor<2x64xf32>
  %3 = tensor.collapse_shape %s [[0, 1]] : tensor<2x64xf32> into tensor<128xf32>
  %4 = tensor.extract_slice %3[0] [64] [1] : tensor<128xf32> to tensor<64xf32>
  %5 = tensor.expand_shape %4 [[0, 1]] output_shape [8, 8] : tensor<64xf32> into tensor<8x8xf32>
  lm.store %5, @b : tensor<8x8xf32>
  %6 = tensor.extract_slice %3[64] [64] [1] : tensor<128xf32> to tensor<64xf32>
  %7 = tensor.expand_shape %6 [[0, 1]] output_shape [8, 8] : tensor<64xf32> into tensor<8x8xf32>
  lm.store %7, @a : tensor<8x8xf32>
  return
}

// A part that is read after the sum, too, keeps bytes of its own, and is copied.
// CHECK-LABEL: plan.function @part_read_later
// CHECK:         plan.gemm
// CHECK:         d {{.*}} writes  @workspace[0], 256 bytes
// CHECK:         plan.gemm
// CHECK:         d {{.*}} writes  @g[512], 256 bytes
// CHECK:         plan.copy
// CHECK:         d {{.*}} writes  @g[256], 256 bytes
// CHECK:         plan.all_reduce
// CHECK:         d {{.*}} adds to @g[256], 512 bytes
// CHECK:         plan.gemm
// CHECK:         a {{.*}} reads   @workspace[0], 256 bytes
func.func @part_read_later() {
  %x = lm.load @x : tensor<8x8xf32>
  %da = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %db = kern.gemm %x, %da : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %e = tensor.empty() : tensor<128xf32>
  %fa = tensor.collapse_shape %da [[0, 1]] : tensor<8x8xf32> into tensor<64xf32>
  %0 = tensor.insert_slice %fa into %e[0] [64] [1] : tensor<64xf32> into tensor<128xf32>
  %fb = tensor.collapse_shape %db [[0, 1]] : tensor<8x8xf32> into tensor<64xf32>
  %1 = tensor.insert_slice %fb into %0[64] [64] [1] : tensor<64xf32> into tensor<128xf32>
  %2 = tensor.expand_shape %1 [[0, 1]] output_shape [2, 64] : tensor<128xf32> into tensor<2x64xf32>
  %s = dist.all_reduce %2 over @ranks replicate : (tensor<2x64xf32>) -> tensor<2x64xf32>
  %y = kern.gemm %da, %da : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %y, @seen : tensor<8x8xf32>
  %3 = tensor.collapse_shape %s [[0, 1]] : tensor<2x64xf32> into tensor<128xf32>
  %4 = tensor.extract_slice %3[0] [64] [1] : tensor<128xf32> to tensor<64xf32>
  %5 = tensor.expand_shape %4 [[0, 1]] output_shape [8, 8] : tensor<64xf32> into tensor<8x8xf32>
  lm.store %5, @a : tensor<8x8xf32>
  %6 = tensor.extract_slice %3[64] [64] [1] : tensor<128xf32> to tensor<64xf32>
  %7 = tensor.expand_shape %6 [[0, 1]] output_shape [8, 8] : tensor<64xf32> into tensor<8x8xf32>
  lm.store %7, @b : tensor<8x8xf32>
  return
}
