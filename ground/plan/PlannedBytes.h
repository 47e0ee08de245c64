// Computes the memory that a plan needs on its device and on the host.
#pragma once

#include "plan_generated.h"

#include <cstdint>

namespace lmc {

// Returns the total size of all arenas in bytes, or UINT64_MAX if it does not fit in 64 bits.
uint64_t plannedBytes(const plan::Plan &plan);

// In a copy of the state, each tensor begins at a multiple of this number of bytes (a cache line).
inline constexpr uint64_t kCopyAlignment = 64;

// Returns the number of bytes of host memory for a copy of rank `rank`'s part of a checkpoint. That
// part (writtenPart()) has weights and moments. The copy includes the padding between rows.
uint64_t stateCopyBytes(const plan::Plan &plan, uint64_t rank);

} // namespace lmc
