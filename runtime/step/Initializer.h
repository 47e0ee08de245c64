// Computes the initial values of a plan's variables on the host.
#pragma once

#include "runtime/device/Device.h"

#include <cstdint>
#include <functional>

namespace lmc {

// Computes elements [begin, begin + count) of `variable` in the dtype of its slice. The values
// depend only on the initializer, the seed, the variable's name and the position. Error: the
// initializer is `None` or `CopyOf`, which do not define values.
Result<void> initialElements(const plan::Variable &variable, const plan::Slice &slice,
                             uint64_t seed, uint64_t begin, uint64_t count, void *out);

// Returns true if a variable shall get its initial values.
using VariableFilter = std::function<bool(const plan::Variable &)>;

// Sets every variable of `plan` that `filter` accepts and whose initializer is neither None nor
// CopyOf; of those that ranks divide, the part of the rank at position `position` along the axis
// Shard. Runs on all OpenMP threads and needs a fixed amount of host memory.
Result<void> initializeVariables(const PlanFile &plan, Device &device, uint64_t seed,
                                 const VariableFilter &filter, uint64_t position = 0);

// Sets every variable with the initializer CopyOf from the variable that it copies. Must be called
// after initializeVariables(), and again after parameters were loaded.
Result<void> refreshCopies(const PlanFile &plan, Device &device, uint64_t position = 0);

} // namespace lmc
