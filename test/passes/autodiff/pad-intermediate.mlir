// lm-pad-intermediate makes an MLP as wide as the next multiple: rows of gate and up, columns of down; names outside of the graph see the old size.
// RUN: lmc-opt %s --split-input-file --lm-pad-intermediate=multiple=8 | FileCheck %s
// RUN: lmc-opt %s --split-input-file --lm-pad-intermediate=multiple=8 --lm-merge-linears | FileCheck %s --check-prefix=MERGED
// RUN: not lmc-opt %s --split-input-file --lm-pad-intermediate=multiple=0 2>&1 | FileCheck %s --check-prefix=NONE

// NONE: needs a multiple of at least 1, not 0

// The parameters and their copies in the compute dtype grow, and biases do.
// CHECK:      lm.variable @l0.gate.weight parameter : tensor<16x4xf32> init normal(stddev = 2.000000e-02 : f64) {parts = [#lm.part<"l0.gate.weight", rows = 13, init = normal(stddev = 2.000000e-02 : f64)>, #lm.part<"", rows = 3, init = zeros>]}
// CHECK-NEXT: lm.variable @l0.gate.weight.compute compute_copy : tensor<16x4xbf16>
// CHECK-NEXT: lm.variable @l0.gate.bias parameter : tensor<16xf32> init ones {parts = [#lm.part<"l0.gate.bias", rows = 13, init = ones>, #lm.part<"", rows = 3, init = zeros>]}
// CHECK-NEXT: lm.variable @l0.up.weight parameter : tensor<16x4xf32>
// CHECK-NEXT: lm.variable @l0.up.weight.compute compute_copy : tensor<16x4xbf16>
// CHECK-NEXT: lm.variable @l0.up.bias parameter : tensor<16xf32>
// CHECK-NEXT: lm.variable @l0.down.weight parameter : tensor<4x16xf32> init normal(stddev = 1.000000e-02 : f64) {parts = [#lm.part<"l0.down.weight", rows = 4, columns = 13, init = normal(stddev = 1.000000e-02 : f64)>]}
// CHECK-NEXT: lm.variable @l0.down.weight.compute compute_copy : tensor<4x16xbf16>
// What an MLP gives is not padded.
// CHECK-NEXT: lm.variable @l0.down.bias parameter : tensor<4xf32> init zeros{{$}}
// Merged with lm-merge-linears, the padding of gate lies before the rows of up.
// MERGED:     lm.variable @"l0.gate+up.weight" parameter : tensor<32x4xf32> init none {parts = [#lm.part<"l0.gate.weight", rows = 13, init = normal(stddev = 2.000000e-02 : f64)>, #lm.part<"", rows = 3, init = zeros>, #lm.part<"l0.up.weight", rows = 13, init = zeros>, #lm.part<"", rows = 3, init = zeros>]}
lm.variable @l0.gate.weight parameter : tensor<13x4xf32> init normal(stddev = 0.02 : f64)
lm.variable @l0.gate.weight.compute compute_copy : tensor<13x4xbf16> init copy_of(source = "l0.gate.weight") {parameter = "l0.gate.weight"}
lm.variable @l0.gate.bias parameter : tensor<13xf32> init ones
lm.variable @l0.up.weight parameter : tensor<13x4xf32> init zeros
lm.variable @l0.up.weight.compute compute_copy : tensor<13x4xbf16> init copy_of(source = "l0.up.weight") {parameter = "l0.up.weight"}
lm.variable @l0.up.bias parameter : tensor<13xf32> init zeros
lm.variable @l0.down.weight parameter : tensor<4x13xf32> init normal(stddev = 0.01 : f64)
lm.variable @l0.down.weight.compute compute_copy : tensor<4x13xbf16> init copy_of(source = "l0.down.weight") {parameter = "l0.down.weight"}
lm.variable @l0.down.bias parameter : tensor<4xf32> init zeros
lm.variable @x input : tensor<6x4xbf16> init none
lm.variable @y input : tensor<6x4xbf16> init none

// CHECK-LABEL: func.func private @layer(
// CHECK-SAME:    tensor<6x4xbf16>, %{{.*}}: tensor<16x4xbf16>, %{{.*}}: tensor<16xf32>, %{{.*}}: tensor<16x4xbf16>, %{{.*}}: tensor<16xf32>, %{{.*}}: tensor<4x16xbf16>, %{{.*}}: tensor<4xf32>) -> tensor<6x4xbf16>
// CHECK:         lm.linear %{{.*}} bias %{{.*}} -> tensor<6x16xbf16>
// CHECK:         lm.linear %{{.*}} bias %{{.*}} -> tensor<6x16xbf16>
// CHECK:         lm.swiglu %{{.*}} : tensor<6x16xbf16>
// CHECK:         lm.linear %{{.*}} : (tensor<6x16xbf16>, tensor<4x16xbf16>, tensor<4xf32>) -> tensor<6x4xbf16>
func.func private @layer(%x: tensor<6x4xbf16>, %g: tensor<13x4xbf16>, %gb: tensor<13xf32>, %u: tensor<13x4xbf16>, %ub: tensor<13xf32>, %d: tensor<4x13xbf16>, %db: tensor<4xf32>) -> tensor<6x4xbf16> {
  %gate = lm.linear %x, %g bias %gb : (tensor<6x4xbf16>, tensor<13x4xbf16>, tensor<13xf32>) -> tensor<6x13xbf16>
  %up = lm.linear %x, %u bias %ub : (tensor<6x4xbf16>, tensor<13x4xbf16>, tensor<13xf32>) -> tensor<6x13xbf16>
  %h = lm.swiglu %gate, %up : tensor<6x13xbf16>
  %y = lm.linear %h, %d bias %db : (tensor<6x13xbf16>, tensor<4x13xbf16>, tensor<4xf32>) -> tensor<6x4xbf16>
  return %y : tensor<6x4xbf16>
}

// CHECK-LABEL: func.func @forward
// CHECK-DAG:     lm.load @l0.gate.weight.compute : tensor<16x4xbf16>
// CHECK-DAG:     lm.load @l0.down.weight.compute : tensor<4x16xbf16>
// CHECK:         call @layer
func.func @forward() {
  %x = lm.load @x : tensor<6x4xbf16>
  %g = lm.load @l0.gate.weight.compute : tensor<13x4xbf16>
  %gb = lm.load @l0.gate.bias : tensor<13xf32>
  %u = lm.load @l0.up.weight.compute : tensor<13x4xbf16>
  %ub = lm.load @l0.up.bias : tensor<13xf32>
  %d = lm.load @l0.down.weight.compute : tensor<4x13xbf16>
  %db = lm.load @l0.down.bias : tensor<4xf32>
  %y = call @layer(%x, %g, %gb, %u, %ub, %d, %db) : (tensor<6x4xbf16>, tensor<13x4xbf16>, tensor<13xf32>, tensor<13x4xbf16>, tensor<13xf32>, tensor<4x13xbf16>, tensor<4xf32>) -> tensor<6x4xbf16>
  lm.store %y, @y : tensor<6x4xbf16>
  return
}

// -----

// An MLP whose width is a multiple stays as it is.
// CHECK-LABEL: func.func @wide
// CHECK:         lm.swiglu %{{.*}} : tensor<6x16xf32>
func.func @wide(%g: tensor<6x16xf32>, %u: tensor<6x16xf32>) -> tensor<6x16xf32> {
  %h = lm.swiglu %g, %u : tensor<6x16xf32>
  return %h : tensor<6x16xf32>
}
