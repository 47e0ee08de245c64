// The meaning of a plan, checked before anything uses it.
#pragma once

#include "runtime/support/Result.h"

#include "plan_generated.h"

namespace lmc {

// For a plan whose structure FlatBuffers' verifier accepted: every index, range,
// shape, enum and name. Afterwards the commands touch only memory of their
// slices, and the slices only memory of their arenas. Kernels' code is not
// looked at. The error names the table and the entry.
Result<void> verifyPlan(const plan::Plan &plan);

} // namespace lmc
