// All functions but arenaBreakdown() check that a slice, a function or bytes that a caller names
// exist. `plan` is null if no plan is loaded. A check with a null `plan` returns an error.
#pragma once

#include "runtime/device/Device.h"

#include <cstdint>

namespace lmc {

// Returns where `bytes` bytes from byte `offset` of a slice lie in an arena. Error: the plan has no
// such slice, or the slice is too short.
Result<ArenaRange> rangeInSlice(const plan::Plan *plan, int slice, uint64_t bytes, uint64_t offset);

// Error: `range` is not inside an arena of the plan.
Result<void> checkRange(const plan::Plan *plan, const ArenaRange &range);

// Error: `bytes` bytes from byte `offset` are not all inside `buffer`.
Result<void> checkRange(const HostBuffer &buffer, uint64_t offset, uint64_t bytes);

// Error: the plan has no function `index`.
Result<const plan::Function *> functionOf(const plan::Plan *plan, int index);

// Returns the sizes of all arenas: "state 1.50 GiB, workspace 0.25 GiB".
std::string arenaBreakdown(const plan::Plan &plan);

} // namespace lmc
