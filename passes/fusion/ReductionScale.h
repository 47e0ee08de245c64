// Computes the scales of tensors in short floats: of gradients that travel between ranks in f16,
// and of factors of matrix products in 8 bits. A scale is a power of two, so that scaling rounds
// nothing. lm.scaled_cast (docs/dialects/lm.md) says which power it is between ranks, and why sums
// over ranks stay finite; lm.fp8_scale says which it is in 8 bits.
#pragma once

#include "passes/fusion/Scalar.h"

namespace lmc {

// Returns 2^k, or 2^-k with `inverse`, as an f32. `largest`, an f32, is the largest absolute
// gradient of all `ranks` ranks.
Scalar reductionScale(Scalar largest, int64_t ranks, bool inverse);

// Returns the smallest power of two s, 2^-126 or more, with largest / s <= the largest number of
// `format`; `largest` itself if it is infinite or NaN. Both are f32.
Scalar fp8Scale(Scalar largest, mlir::FloatType format);

} // namespace lmc
