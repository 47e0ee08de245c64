// Initial values of a plan's variables, computed on the host.
#pragma once

#include "runtime/device/Device.h"

#include <cstdint>
#include <functional>

namespace lmc {

// Computes elements [begin, begin + count) of `variable` in the dtype of its slice. The values are
// a pure function of the initializer, the seed, the variable's name and the position. Fails for
// `None` and `CopyOf`, which have no values of their own.
Result<void> initialElements(const plan::Variable &variable, const plan::Slice &slice,
                             uint64_t seed, uint64_t begin, uint64_t count, void *out);

// Returns true for a variable to set.
using VariableFilter = std::function<bool(const plan::Variable &)>;

// Sets every variable of `plan` that `filter` accepts and whose initializer is neither None nor
// CopyOf. Uses all OpenMP threads and a fixed amount of host memory.
Result<void> initializeVariables(const PlanFile &plan, Device &device, uint64_t seed,
                                 const VariableFilter &filter);

// Sets every CopyOf variable from its source. Must be called after the initialisation and after
// parameters were loaded.
Result<void> refreshCopies(const PlanFile &plan, Device &device);

} // namespace lmc
