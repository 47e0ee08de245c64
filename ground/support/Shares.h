// Turns the weights of a mixture's sources into whole numbers.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <vector>

namespace lmc {

// Returns the smallest whole numbers in the ratio of the weights: 2, 3 for 0.5, 0.75. Fails if
// there are no weights or more than 1,000, if a weight is not a finite number above 0, or if the
// weights have so many digits that the sum of the whole numbers would exceed 2^24.
Result<std::vector<uint64_t>> sharesOfWeights(const std::vector<double> &weights);

} // namespace lmc
