// Turns the weights of a mixture's sources into whole numbers, for the compiler and for lmc-run.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <vector>

namespace lmc {

// Returns whole numbers in the ratio of the weights, as small as possible. A weight counts as the
// shortest decimal number that is read as its value. Errors: there is no weight, or more than
// 1,000; a weight is not a finite number above 0; the sum of the numbers, which is the period of
// the order of the sources, would exceed 2^24 because the weights have too many digits.
Result<std::vector<uint64_t>> sharesOfWeights(const std::vector<double> &weights);

} // namespace lmc
