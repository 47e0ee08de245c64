// The memory that a plan needs, on its device and on the host.
#pragma once

#include "plan_generated.h"

#include <cstdint>

namespace lmc {

// Returns the bytes of all arenas together, or UINT64_MAX if the sum does not fit in 64 bits.
uint64_t plannedBytes(const plan::Plan &plan);

// Each tensor of a copy of the state begins at a multiple of this, a cache line.
inline constexpr uint64_t kCopyAlignment = 64;

// Returns the bytes of host memory for a copy of what rank `rank` writes to a checkpoint, which is
// its part of the weights and moments, with what lies between the rows of a padded tensor.
uint64_t stateCopyBytes(const plan::Plan &plan, uint64_t rank);

} // namespace lmc
