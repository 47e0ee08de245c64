// Moments of the optimizer in 8 bits: conversion between an f32 and its code.
//
// With c the code and s the scale of its moment block, the largest magnitude there:
//
//   moment1 = s sign(c) (|c| / 127)^4    c = -127 .. 127
//   moment2 = s (c / 255)^8              c = 0 .. 255, as an i8 of the same bits
//
// c is rounded to nearest, and a moment2 above zero has c >= 1: the update, moment1 /
// sqrt(moment2), never divides by a moment that was rounded to zero. All codes are in use except
// moment1's -128 (an even -0), both maps are monotone, and code 0 is 0, the initial value.
//
// Why powers: an update needs moment1 and sqrt(moment2) with a relative precision that holds over
// decades, because the elements of a block differ by decades and each is divided by its own root. A
// linear code loses the small elements. A float of 8 bits spends as many codes on values around a
// ten-thousandth of the largest element as on values around the largest. (|c| / 127)^4 has a
// relative step of 4 / |c|, so precision falls slowly: rounding changes moment1 by at most 1.6%
// near the largest element, 5% at a hundredth and 16% at a ten-thousandth of it, and sqrt(moment2)
// = sqrt(s) (c / 255)^4 by half of that. Encoding takes square roots and decoding takes products;
// no table is needed.
//
// Rounding to nearest has a price: a step that changes a moment by less than half a code leaves it
// unchanged. A decay by beta alone lowers code c only if c (1 - beta^(1/8)) is at least a half
// (moment1: c (1 - beta^(1/4)), which gives the same limits). While a larger element keeps the
// scale, sqrt(moment2) can therefore fall to 0.05% of that element's for a beta2 of 0.9, to 0.9%
// for 0.95 and to 37% for 0.98; from 0.985 on it never falls. If gradients fall to a hundredth,
// sqrt(moment2) stays 1.3, 2.2 and 36 times too large for these values of beta2, and 100 times for
// 0.99 and 0.999, and the element learns that much slower. So beta2 is best at 0.95 or below, as is
// beta1.
//
// The dynamic tree code of Dettmers et al. 2022 (https://arxiv.org/abs/2110.02861) is a table of
// 256 entries with a relative step of up to 14% within its first decade.
// test/parity/test_adamw8bit.py measures both codes; test/passes/fusion/MomentCodeTest.cpp tests
// the other claims.
#pragma once

#include "mlir/IR/Builders.h"

namespace lmc {

// Decode one element. `code` is an i8, `scale` an f32.
mlir::Value decodeMoment1(mlir::OpBuilder &b, mlir::Location loc, mlir::Value code,
                          mlir::Value scale);
mlir::Value decodeMoment2(mlir::OpBuilder &b, mlir::Location loc, mlir::Value code,
                          mlir::Value scale);

// Encode one element as an i8. `moment` is an f32 no larger than the scale, `inverse` is 1 / scale.
mlir::Value encodeMoment1(mlir::OpBuilder &b, mlir::Location loc, mlir::Value moment,
                          mlir::Value inverse);
mlir::Value encodeMoment2(mlir::OpBuilder &b, mlir::Location loc, mlir::Value moment,
                          mlir::Value inverse);

} // namespace lmc
