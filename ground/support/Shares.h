// Weights of the sources of a mixture as whole numbers: the compiler checks them as a run does.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <vector>

namespace lmc {

// Returns whole numbers in the ratio of the weights, as small as possible. A weight counts as the
// shortest decimal number that is read as its value. Errors: there is no weight, or more than
// 1,000; a weight is not a finite number above 0; the numbers' sum, after which the order of the
// sources repeats, would be beyond 2^24, for weights with too many digits.
Result<std::vector<uint64_t>> sharesOfWeights(const std::vector<double> &weights);

} // namespace lmc
