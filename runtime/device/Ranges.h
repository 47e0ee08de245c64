// Checks that the slices, functions and ranges of bytes that a caller of a device names exist. All
// devices use these checks.
#pragma once

#include "runtime/device/Device.h"

#include <cstdint>

namespace lmc {

// Returns where `bytes` bytes from byte `offset` of slice `slice` lie in an arena. Error: `plan` is
// null (nothing is loaded), or the plan has no such slice, or the slice is too short.
Result<ArenaRange> rangeInSlice(const plan::Plan *plan, int slice, uint64_t bytes, uint64_t offset);

// Error: `plan` is null, or `range` is not inside an arena of the plan.
Result<void> checkRange(const plan::Plan *plan, const ArenaRange &range);

// Error: `bytes` bytes from byte `offset` are not all inside `buffer`.
Result<void> checkRange(const HostBuffer &buffer, uint64_t offset, uint64_t bytes);

// Returns function `index` of the plan. Error: `plan` is null, or has no such function.
Result<const plan::Function *> functionOf(const plan::Plan *plan, int index);

// Returns the sizes of all arenas: "state 1.50 GiB, workspace 0.25 GiB".
std::string arenaBreakdown(const plan::Plan &plan);

} // namespace lmc
