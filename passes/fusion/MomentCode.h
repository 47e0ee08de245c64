// Encodes the optimizer's f32 moments as 8-bit codes, and decodes them.
//
// Let c be the code of an element, and s the scale of its moment block, which is the largest
// magnitude in the block:
//
//   moment1 = s sign(c) (|c| / 127)^4    c = -127 .. 127
//   moment2 = s (c / 255)^8              c = 0 .. 255, stored in the bits of an i8
//
// c is rounded to nearest. If moment2 is above zero, c is at least 1, so that the update, moment1 /
// sqrt(moment2), never divides by a moment that was rounded to zero.
//
// The codes use powers because the elements of a block differ by several powers of ten, and the
// update needs moment1 and sqrt(moment2) with a small relative error. Neighbouring values of (|c| /
// 127)^4 differ by 4 / |c|, relatively, and rounding errs by at most half of this. The error of
// moment1 is at most 1.6% near the largest element, 5% for an element that is 100 times smaller,
// and 16% for one that is 10,000 times smaller. The error of sqrt(moment2) is half as large.
//
// Rounding has a price: if a step changes a moment by less than half a code, the moment stays as it
// is. While an element's gradient is zero, its moment2 falls only if c (1 - beta2^(1/8)) >= 0.5.
// Assume that a larger element keeps the scale constant. Then the smaller element's sqrt(moment2)
// falls only to 0.05% of the larger element's for beta2 = 0.9, to 0.9% for 0.95 and to 37% for
// 0.98, and never falls for beta2 from 0.985 on. If gradients fall to 1% of their size,
// sqrt(moment2) stays too large by a factor of 1.3 for beta2 = 0.9, 2.2 for 0.95, 36 for 0.98, and
// 100 for 0.99 and 0.999. The element learns slower by this factor. For moment1, c (1 -
// beta1^(1/4)) gives nearly the same limits. Values of beta1 and beta2 up to 0.95 are therefore
// best.
//
// The dynamic tree code of Dettmers et al. 2022 (https://arxiv.org/abs/2110.02861) is a table of
// 256 entries with a relative step of up to 14% within its first power of ten.
// test/parity/test_adamw8bit.py measures both codes; test/passes/fusion/MomentCodeTest.cpp tests
// the other claims.
#pragma once

#include "passes/fusion/Scalar.h"

namespace lmc {

// Return the moment of one element. `code` is an i8, `scale` an f32.
Scalar decodeMoment1(Scalar code, Scalar scale);
Scalar decodeMoment2(Scalar code, Scalar scale);

// Return the code of one element as an i8. `moment` is an f32 whose magnitude is at most the scale;
// `inverse` is 1 / scale.
Scalar encodeMoment1(Scalar moment, Scalar inverse);
Scalar encodeMoment2(Scalar moment, Scalar inverse);

} // namespace lmc
