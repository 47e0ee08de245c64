// First values of a plan's variables, made on the host.
#pragma once

#include "runtime/device/Device.h"

#include <cstdint>
#include <functional>

namespace lmc {

// Elements [begin, begin + count) of `variable` in its slice's dtype, as its
// initializer says: a pure function of (seed, the variable's name, position).
// `None` and `CopyOf` make no values of their own: an Error.
Result<void> initialElements(const plan::Variable &variable, const plan::Slice &slice,
                             uint64_t seed, uint64_t begin, uint64_t count, void *out);

// Which variables to set.
using VariableFilter = std::function<bool(const plan::Variable &)>;

// Sets every variable of `plan` that `filter` accepts and that has an initializer
// other than None and CopyOf. Uses all OpenMP threads and a fixed amount of host
// memory.
Result<void> initializeVariables(const PlanFile &plan, Device &device, uint64_t seed,
                                 const VariableFilter &filter);

// Sets every CopyOf variable from its source: after initialisation, and after
// parameters were loaded.
Result<void> refreshCopies(const PlanFile &plan, Device &device);

} // namespace lmc
