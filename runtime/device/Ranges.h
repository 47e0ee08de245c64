// Checks the ranges that a caller names: slices, ranges of arenas and of host buffers, functions.
// All devices use these checks.
#pragma once

#include "runtime/device/Device.h"

#include <cstdint>

namespace lmc {

// Returns the range of `bytes` bytes from byte `offset` of slice `slice`. Error: `plan` is null
// (nothing is loaded), or the plan has no such slice, or the slice is too short.
Result<ArenaRange> rangeInSlice(const plan::Plan *plan, int slice, uint64_t bytes, uint64_t offset);

// Checks a range of an arena. Error: `plan` is null, or `range` is not inside one arena of it.
Result<void> checkRange(const plan::Plan *plan, const ArenaRange &range);

// Checks a range of a buffer. Error: `bytes` bytes from byte `offset` are not all inside `buffer`.
Result<void> checkRange(const HostBuffer &buffer, uint64_t offset, uint64_t bytes);

// Returns function `index` of the plan. Error: `plan` is null, or has no such function.
Result<const plan::Function *> functionOf(const plan::Plan *plan, int index);

// Returns the bytes of every arena, as in "state 1.50 GiB, workspace 0.25 GiB".
std::string arenaBreakdown(const plan::Plan &plan);

} // namespace lmc
