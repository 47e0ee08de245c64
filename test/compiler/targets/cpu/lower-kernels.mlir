// RUN: lmc-opt %s --kern-lower-kernels=vector-width=256 | FileCheck %s
// RUN: lmc-opt %s --kern-lower-kernels="vector-width=128 fma=false" | FileCheck %s --check-prefix=BASE

#i = affine_map<(i) -> (i)>

// A flat kernel: two vectors at once, then one, then scalars; all loads of an
// iteration precede its stores. x * y + x is one fma where there is one.

// CHECK-LABEL: func.func @multiplyAdd(%{{.*}}: !llvm.ptr, %{{.*}}: i64, %{{.*}}: i64)
// CHECK:       scf.for
// CHECK:         llvm.load %{{.*}} {alignment = 4 : i64} : !llvm.ptr -> vector<8xf32>
// CHECK:         math.fma {{.*}} : vector<8xf32>
// CHECK:         math.fma {{.*}} : vector<8xf32>
// CHECK-NOT:     llvm.load
// CHECK:         llvm.store
// CHECK:         llvm.store
// CHECK:       scf.for
// CHECK:         math.fma {{.*}} : vector<8xf32>
// CHECK:       scf.for
// CHECK:         math.fma {{.*}} : f32
// CHECK:       return

// BASE-LABEL: func.func @multiplyAdd
// BASE-NOT:     math.fma
// BASE:         arith.mulf {{.*}} : vector<4xf32>
// BASE:         arith.addf {{.*}} : vector<4xf32>
kern.kernel @multiplyAdd elementwise {
^bb0(%x: tensor<100xf32>, %y: tensor<100xf32>):
  %e = tensor.empty() : tensor<100xf32>
  %z = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}
      ins(%x, %y : tensor<100xf32>, tensor<100xf32>) outs(%e : tensor<100xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %p, %a : f32
    linalg.yield %s : f32
  } -> tensor<100xf32>
  kern.yield %z : tensor<100xf32>
}


#rc = affine_map<(r, c) -> (r, c)>
#r = affine_map<(r, c) -> (r)>

// A row: sums in four independent vectors, folded in a fixed order; the second pass
// computes again what the first one read.

// CHECK-LABEL: func.func @minusMean
// CHECK:       scf.for
// CHECK:         scf.for {{.*}} iter_args({{.*}}) -> (vector<8xf32>, vector<8xf32>, vector<8xf32>, vector<8xf32>)
// CHECK-NOT:       llvm.store
// CHECK:         vector.shuffle
// CHECK:         scf.for
// CHECK:           arith.subf {{.*}} : vector<8xf32>
// CHECK:           llvm.store
kern.kernel @minusMean row_reduction {
^bb0(%x: tensor<4x64xf32>):
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x64xf32>
  %er = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%er : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.generic {indexing_maps = [#rc, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x64xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %t = arith.addf %acc, %a : f32
    linalg.yield %t : f32
  } -> tensor<4xf32>
  %y = linalg.generic {indexing_maps = [#rc, #r, #rc], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<4x64xf32>, tensor<4xf32>) outs(%e : tensor<4x64xf32>) {
  ^bb0(%a: f32, %m: f32, %o: f32):
    %n = arith.constant 64.0 : f32
    %k = arith.divf %m, %n : f32
    %t = arith.subf %a, %k : f32
    linalg.yield %t : f32
  } -> tensor<4x64xf32>
  kern.yield %y : tensor<4x64xf32>
}
