// Moments of the optimizer in 8 bits: how an f32 becomes a code, and a code an f32.
//
// With c the code and s the scale of its block, the largest magnitude there:
//
//   moment1 = s sign(c) (|c| / 127)^4    c = -127 .. 127
//   moment2 = s (c / 255)^8              c = 0 .. 255, as an i8 of the same bits
//
// c is rounded to nearest, and a moment2 above zero has c >= 1: the update, moment1 /
// sqrt(moment2), never divides by a rounded-away number. All codes but moment1's -128 (an
// even -0) are in use, both maps are monotone, and code 0 is 0, which state starts as.
//
// Why powers: an update needs moment1 and sqrt(moment2) with a relative precision that holds
// over decades, as the elements of a block differ by that much and each is divided by its own
// root. A linear code loses the small ones; floats of 8 bits spend as much on a ten-thousandth
// of the largest element as on the largest. (|c| / 127)^4 has a relative step of 4 / |c|, so
// precision falls off slowly: for moment1 rounding is at most 1.6% near the largest, 5% at a
// hundredth and 16% at a ten-thousandth of it; of sqrt(moment2) = sqrt(s) (c / 255)^4 half of
// that. It takes square roots one way and products the other, no table.
//
// Rounding to nearest has its price: a step that changes a moment by less than half a code leaves
// it where it was. A decay by beta alone lowers code c if c (1 - beta^(1/8)) is half at least
// (of moment1 c (1 - beta^(1/4)), which comes to the same): so sqrt(moment2) can fall, beside a
// larger one that keeps the scale, to 0.05% of that for a beta2 of 0.9, 0.9% for 0.95 and 37% for
// 0.98; from 0.985 on it never falls. Where gradients fall to a hundredth, sqrt(moment2) stays
// 1.3, 2.2 and 36 times too large for these, 100 times for 0.99 and 0.999, and the element learns
// that much slower. So beta2 is best at 0.95 or below, as beta1 is.
//
// The dynamic tree code of Dettmers et al. 2022 (https://arxiv.org/abs/2110.02861) is a table
// of 256 entries with a relative step of up to 14% within its first decade. test/parity/
// test_adamw8bit.py measures both, test/passes/fusion/MomentCodeTest.cpp the rest.
#pragma once

#include "mlir/IR/Builders.h"

namespace lmc {

// `code` is an i8, `scale` an f32.
mlir::Value decodeMoment1(mlir::OpBuilder &b, mlir::Location loc, mlir::Value code,
                          mlir::Value scale);
mlir::Value decodeMoment2(mlir::OpBuilder &b, mlir::Location loc, mlir::Value code,
                          mlir::Value scale);

// `moment` is an f32 no larger than the scale, `inverse` 1 / scale. Returns an i8.
mlir::Value encodeMoment1(mlir::OpBuilder &b, mlir::Location loc, mlir::Value moment,
                          mlir::Value inverse);
mlir::Value encodeMoment2(mlir::OpBuilder &b, mlir::Location loc, mlir::Value moment,
                          mlir::Value inverse);

} // namespace lmc
