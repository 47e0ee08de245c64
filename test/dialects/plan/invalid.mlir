// Every verifier error of the plan dialect. Whether places lie inside their arenas is checked for a
// whole module: test/compiler/phases/verify-level-buffers.mlir.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics

// expected-error @+1 {{'plan.arena' op has 64 bytes where no packing needs less than 128}}
plan.arena @state bytes 64 alignment 64 lower_bound 128

// -----

// expected-error @+1 {{'plan.arena' op has an alignment of 48, which is no power of two}}
plan.arena @state bytes 64 alignment 48 lower_bound 64

// -----

plan.function @f peak 1024 {
  // expected-error @+1 {{'plan.slice' op lives from command 3 to 2}}
  %x = plan.slice @w[0] temporaries "" live [3, 2] : !plan.slice<tensor<8xf32>>
}

// -----

plan.function @f peak 1024 {
  // expected-error @+1 {{'plan.slice' op begins at byte 6, but its elements have 4}}
  %x = plan.slice @w[6] temporaries "" live [0, 0] : !plan.slice<tensor<8xf32>>
}

// -----

plan.function @f peak 1024 {
  // expected-error @+1 {{'plan.slice' op begins at byte -4, but its elements have 4}}
  %x = plan.slice @w[-4] temporaries "" live [0, 0] : !plan.slice<tensor<8xf32>>
}

// -----

plan.function @f peak 1024 {
  // expected-error @+1 {{'plan.slice' op has 4 rows, 16 bytes apart, of 'tensor<4x8xf32>'}}
  %x = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<4x8xf32>> {rows = 4 : i64, pitch = 16 : i64}
}

// -----

plan.function @f peak 1024 {
  // expected-error @+1 {{'plan.slice' op has 3 rows, 64 bytes apart, of 'tensor<4x8xf32>'}}
  %x = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<4x8xf32>> {rows = 3 : i64, pitch = 64 : i64}
}

// -----

plan.function @f peak 1024 {
  // expected-error @+1 {{'plan.slice' op has 4 rows, 0 bytes apart, of 'tensor<4x8xf32>'}}
  %x = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<4x8xf32>> {rows = 4 : i64}
}

// -----

plan.function @f peak 1024 {
  // expected-error @+1 {{'plan.variable_ref' op has 4 rows, 34 bytes apart, of 'tensor<4x8xf32>'}}
  %x = plan.variable_ref @x : !plan.slice<tensor<4x8xf32>> {rows = 4 : i64, pitch = 34 : i64}
}

// -----

plan.function @f peak 1024 {
  %x = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<8xf32>>
  // expected-error @+1 {{'plan.launch' op has 2 inputs of 1 arguments}}
  "plan.launch"(%x) {kernel = @k, inputs = 2 : i64, items = 1 : i64, chunk = 1 : i64} : (!plan.slice<tensor<8xf32>>) -> ()
}

// -----

plan.function @f peak 1024 {
  %x = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<8xf32>>
  // expected-error @+1 {{'plan.launch' op has 0 items in chunks of 1}}
  plan.launch @k items 0 chunk 1 (
    in %x : tensor<8xf32>
  )
}

// -----

plan.function @f peak 1024 {
  %x = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<8xf32>>
  // expected-error @+1 {{'plan.launch' op has 8 items in chunks of 0}}
  plan.launch @k items 8 chunk 0 (
    in %x : tensor<8xf32>
  )
}

// -----

plan.function @f peak 1024 {
  %a = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<8x4xf32>>
  %b = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<4x2xf32>>
  %d = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<8x2xf32>>
  %c = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<4xf32>>
  // expected-error @+1 {{'plan.gemm' op needs matrices, has 'tensor<8x4xf32>', 'tensor<4x2xf32>' and 'tensor<4xf32>'}}
  plan.gemm (
    a %a : tensor<8x4xf32>
    b %b : tensor<4x2xf32>
    d %c : tensor<4xf32>
  )
}

// -----

plan.function @f peak 1024 {
  %a = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<8x4xf32>>
  %b = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<4x2xf32>>
  %d = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<8x2xf32>>
  %c = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<4xf32>>
  // expected-error @+1 {{'plan.gemm' op makes no 'tensor<8x2xf32>' of 'tensor<8x4xf32>' transposed and 'tensor<4x2xf32>'}}
  plan.gemm {transpose_a} (
    a %a : tensor<8x4xf32>
    b %b : tensor<4x2xf32>
    d %d : tensor<8x2xf32>
  )
}

// -----

plan.function @f peak 1024 {
  %a = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<8x4xf32>>
  %b = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<4x2xf32>>
  %d = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<8x2xf32>>
  %c = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<4xf32>>
  // expected-error @+1 {{'plan.gemm' op has a bias of 'tensor<4xf32>' for 'tensor<8x2xf32>'}}
  plan.gemm (
    a %a : tensor<8x4xf32>
    b %b : tensor<4x2xf32>
    bias %c : tensor<4xf32>
    d %d : tensor<8x2xf32>
  )
}

// -----

plan.function @f peak 1024 {
  %a = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<8x4xf32>>
  %b = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<4x2xf32>>
  %d = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<8x2xf32>>
  // expected-error @+1 {{'plan.gemm' op has a residual of 'tensor<8x4xf32>' for 1 of 'tensor<8x2xf32>'}}
  plan.gemm (
    a %a : tensor<8x4xf32>
    b %b : tensor<4x2xf32>
    residual %a : tensor<8x4xf32>
    d %d : tensor<8x2xf32>
  )
}

// -----

plan.function @f peak 1024 {
  %ids = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<8xi32>>
  %x = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<8x4xf32>>
  %d = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<16x8xf32>>
  // expected-error @+1 {{'plan.scatter_add' op cannot add rows of 'tensor<8x4xf32>' at 'tensor<8xi32>' to 'tensor<16x8xf32>'}}
  plan.scatter_add (
    ids %ids : tensor<8xi32>
    x %x : tensor<8x4xf32>
    d %d : tensor<16x8xf32>
  )
}

// -----

plan.function @f peak 1024 {
  %ids = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<8xi32>>
  %x = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<8x4xf32>>
  %d = plan.slice @w[0] temporaries "" live [0, 0] : !plan.slice<tensor<16x8xf32>>
  // expected-error @+1 {{'plan.copy' op copies 128 bytes to 512}}
  plan.copy (
    x %x : tensor<8x4xf32>
    d %d : tensor<16x8xf32>
  )
}
