// Computes the initial values of a plan's variables on the host.
#pragma once

#include "runtime/device/Device.h"

#include <cstdint>
#include <functional>

namespace lmc {

// Computes elements [begin, begin + count) of `variable` in the dtype of its slice. An element
// depends only on the initializer, the seed, the variable's name and the element's index. Error:
// the initializer is None or CopyOf.
Result<void> initialElements(const plan::Variable &variable, const plan::Slice &slice,
                             uint64_t seed, uint64_t begin, uint64_t count, void *out);

// Returns true if a variable shall get its initial values.
using VariableFilter = std::function<bool(const plan::Variable &)>;

// Sets every variable that `filter` accepts, unless its initializer is None or CopyOf. If ranks
// divide a variable, sets only the part of the rank at `position` along the mesh axis Shard.
Result<void> initializeVariables(const PlanFile &plan, Device &device, uint64_t seed,
                                 const VariableFilter &filter, uint64_t position = 0);

// Sets every variable whose initializer is CopyOf. Must be called after parameters were set.
Result<void> refreshCopies(const PlanFile &plan, Device &device, uint64_t position = 0);

} // namespace lmc
