// Verifies the meaning of a plan before anything uses it.
#pragma once

#include "runtime/support/Result.h"

#include "plan_generated.h"

namespace lmc {

// Verifies a plan whose structure FlatBuffers' verifier accepted: every index, range, shape, enum
// and name. If it succeeds, commands access only memory of their slices, and slices only memory of
// their arenas. The code of kernels is not examined. The error names the table and the entry.
Result<void> verifyPlan(const plan::Plan &plan);

} // namespace lmc
