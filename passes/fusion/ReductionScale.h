// Computes the scale of gradients that travel between ranks in f16. The scale is a power of two, so
// that scaling rounds nothing. lm.scaled_cast (docs/dialects/lm.md) says which power it is, and why
// sums over ranks stay finite.
#pragma once

#include "passes/fusion/Scalar.h"

namespace lmc {

// Returns 2^k, or 2^-k with `inverse`, as an f32. `largest`, an f32, is the largest absolute
// gradient of all `ranks` ranks.
Scalar reductionScale(Scalar largest, int64_t ranks, bool inverse);

} // namespace lmc
