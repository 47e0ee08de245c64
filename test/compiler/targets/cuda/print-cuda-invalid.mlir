// What --kern-to-cuda refuses, each with the reason.
// RUN: lmc-translate --kern-to-cuda %s --verify-diagnostics --split-input-file

#i = affine_map<(i, j) -> (i, j)>
// expected-error@+1 {{cannot be printed as CUDA C++: tensor.extract needs hero gather}}
kern.kernel @gather elementwise {
^bb0(%x: tensor<4x8xf32>):
  %e = tensor.empty() : tensor<4x8xf32>
  %y = linalg.generic {indexing_maps = [#i], iterator_types = ["parallel", "parallel"]}
      outs(%e : tensor<4x8xf32>) {
  ^bb0(%o: f32):
    %r = linalg.index 0 : index
    %c = linalg.index 1 : index
    %t = tensor.extract %x[%r, %c] : tensor<4x8xf32>
    linalg.yield %t : f32
  } -> tensor<4x8xf32>
  kern.yield %y : tensor<4x8xf32>
}

// -----

#turned = affine_map<(i, j) -> (j, i)>
#same = affine_map<(i, j) -> (i, j)>
// expected-error@+1 {{cannot be printed as CUDA C++: input 0 is not contiguous along the innermost dimension}}
kern.kernel @transpose elementwise {
^bb0(%x: tensor<8x4xf32>):
  %e = tensor.empty() : tensor<4x8xf32>
  %y = linalg.generic {indexing_maps = [#turned, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x4xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4x8xf32>
  kern.yield %y : tensor<4x8xf32>
}
