// lm-fold-residual: a linear layer adds the residual that only its result is added to.
// RUN: lmc-opt %s --lm-fold-residual | FileCheck %s

// CHECK-LABEL: func.func @either_side(
// CHECK-SAME:    %[[X:[^ ]*]]: tensor<4x8xbf16>, %[[W:[^ ]*]]: tensor<2x8xbf16>, %[[R:[^ ]*]]: tensor<4x2xbf16>)
// CHECK-NEXT:    %[[S:.*]] = lm.linear %[[X]], %[[W]] residual %[[R]] : (tensor<4x8xbf16>, tensor<2x8xbf16>, tensor<4x2xbf16>) -> tensor<4x2xbf16>
// CHECK-NEXT:    %[[T:.*]] = lm.linear %[[X]], %[[W]] residual %[[S]] :
// CHECK-NEXT:    return %[[S]], %[[T]]
func.func @either_side(%x: tensor<4x8xbf16>, %w: tensor<2x8xbf16>, %r: tensor<4x2xbf16>) -> (tensor<4x2xbf16>, tensor<4x2xbf16>) {
  %y = lm.linear %x, %w : (tensor<4x8xbf16>, tensor<2x8xbf16>) -> tensor<4x2xbf16>
  %s = lm.add %r, %y : tensor<4x2xbf16>
  %z = lm.linear %x, %w : (tensor<4x8xbf16>, tensor<2x8xbf16>) -> tensor<4x2xbf16>
  %t = lm.add %z, %s : tensor<4x2xbf16>
  return %s, %t : tensor<4x2xbf16>, tensor<4x2xbf16>
}

// A bias is added too.
// CHECK-LABEL: func.func @bias(
// CHECK:         lm.linear %{{.*}}, %{{.*}} bias %{{.*}} residual %{{.*}} :
// CHECK-NEXT:    return
func.func @bias(%x: tensor<4x8xbf16>, %w: tensor<2x8xbf16>, %b: tensor<2xf32>, %r: tensor<4x2xbf16>) -> tensor<4x2xbf16> {
  %y = lm.linear %x, %w bias %b : (tensor<4x8xbf16>, tensor<2x8xbf16>, tensor<2xf32>) -> tensor<4x2xbf16>
  %s = lm.add %r, %y : tensor<4x2xbf16>
  return %s : tensor<4x2xbf16>
}

// Of two products the later one adds the earlier one.
// CHECK-LABEL: func.func @two_products(
// CHECK-NEXT:    %[[Y:.*]] = lm.linear %{{.*}}, %{{.*}} : (
// CHECK-NEXT:    %[[S:.*]] = lm.linear %{{.*}}, %{{.*}} residual %[[Y]] :
// CHECK-NEXT:    return %[[S]]
func.func @two_products(%x: tensor<4x8xbf16>, %w: tensor<2x8xbf16>) -> tensor<4x2xbf16> {
  %y = lm.linear %x, %w : (tensor<4x8xbf16>, tensor<2x8xbf16>) -> tensor<4x2xbf16>
  %z = lm.linear %x, %w : (tensor<4x8xbf16>, tensor<2x8xbf16>) -> tensor<4x2xbf16>
  %s = lm.add %z, %y : tensor<4x2xbf16>
  return %s : tensor<4x2xbf16>
}

// Something else reads the product as it is.
// CHECK-LABEL: func.func @read_elsewhere(
// CHECK-NOT:     residual
// CHECK:         lm.add
func.func @read_elsewhere(%x: tensor<4x8xbf16>, %w: tensor<2x8xbf16>, %r: tensor<4x2xbf16>) -> (tensor<4x2xbf16>, tensor<4x2xbf16>) {
  %y = lm.linear %x, %w : (tensor<4x8xbf16>, tensor<2x8xbf16>) -> tensor<4x2xbf16>
  %s = lm.add %r, %y : tensor<4x2xbf16>
  return %s, %y : tensor<4x2xbf16>, tensor<4x2xbf16>
}

// The product is added to itself.
// CHECK-LABEL: func.func @twice(
// CHECK-NOT:     residual
// CHECK:         lm.add
func.func @twice(%x: tensor<4x8xbf16>, %w: tensor<2x8xbf16>) -> tensor<4x2xbf16> {
  %y = lm.linear %x, %w : (tensor<4x8xbf16>, tensor<2x8xbf16>) -> tensor<4x2xbf16>
  %s = lm.add %y, %y : tensor<4x2xbf16>
  return %s : tensor<4x2xbf16>
}

// The other operand is computed after the product.
// CHECK-LABEL: func.func @known_later(
// CHECK-NOT:     residual
// CHECK:         lm.add %{{.*}}, %{{.*}} :
// CHECK:         lm.add
func.func @known_later(%x: tensor<4x8xbf16>, %w: tensor<2x8xbf16>, %r: tensor<4x2xbf16>) -> tensor<4x2xbf16> {
  %y = lm.linear %x, %w : (tensor<4x8xbf16>, tensor<2x8xbf16>) -> tensor<4x2xbf16>
  %t = lm.add %r, %r : tensor<4x2xbf16>
  %s = lm.add %t, %y : tensor<4x2xbf16>
  return %s : tensor<4x2xbf16>
}
