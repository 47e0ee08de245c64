// Adds up the elements of ranks in the order of the ranks.
#pragma once

#include "plan_generated.h"

#include <cstdint>

namespace lmc {

// Sets d[i] = ((xs[0][i] + xs[1][i]) + xs[2][i]) + ... for all i < elements. xs has one tensor of
// each rank; d may be one of these tensors. F64 is added in f64, other types in f32. A BF16 or F16
// sum is rounded once, to nearest even.
void sumInRankOrder(const void *const *xs, int ranks, uint64_t elements, plan::DType dtype,
                    void *d);

} // namespace lmc
