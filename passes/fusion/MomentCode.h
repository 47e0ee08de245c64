// The code of 8-bit moments: how an f32 moment of the optimizer becomes an 8-bit code, and back.
//
// Let c be the code of an element, and s the scale of its moment block, which is the largest
// magnitude in the block:
//
//   moment1 = s sign(c) (|c| / 127)^4    c = -127 .. 127
//   moment2 = s (c / 255)^8              c = 0 .. 255, stored in the bits of an i8
//
// c is rounded to nearest, but is at least 1 for a moment2 above zero: the update, moment1 /
// sqrt(moment2), then never divides by a moment that was rounded to zero. All codes are used except
// -128 of moment1. Both maps are monotone, and code 0 stands for 0, the initial value.
//
// Powers are used because an update needs moment1 and sqrt(moment2) with a relative precision that
// holds over several powers of ten: the elements of a block differ by so much, and each moment1 is
// divided by its own root. A linear code loses the small elements. An 8-bit float uses as many
// codes for values around a ten-thousandth of the largest element as for values around the largest.
// (|c| / 127)^4 has a relative step of 4 / |c|, so precision falls slowly: rounding changes moment1
// by at most 1.6% near the largest element, 5% at a hundredth and 16% at a ten-thousandth of it,
// and sqrt(moment2) = sqrt(s) (c / 255)^4 by half of these percentages. Encoding takes square roots
// and decoding takes products; no table is needed.
//
// Rounding to nearest has a price: a step that changes a moment by less than half a code leaves the
// moment unchanged. If an element's gradient is zero, beta alone lowers its code c, and only if c
// (1 - beta^(1/8)) is at least a half (for moment1: c (1 - beta^(1/4)), which gives the same
// limits). While a larger element keeps the scale, sqrt(moment2) can therefore only fall to 0.05%
// of the larger element's for beta2 = 0.9, to 0.9% for 0.95 and to 37% for 0.98; from 0.985 on it
// never falls. If gradients fall to 1% of their size, sqrt(moment2) stays 1.3, 2.2 and 36 times too
// large for these beta2, and 100 times for 0.99 and 0.999, and the element learns that much slower.
// The best values of beta1 and beta2 are therefore 0.95 or below.
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
