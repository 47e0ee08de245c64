// Verifies the meaning of a plan before anything uses it.
#pragma once

#include "ground/support/Result.h"

#include "plan_generated.h"

namespace lmc {

// Verifies every index, range, shape, enum and name of a plan whose structure FlatBuffers' verifier
// has accepted. After success, every slice lies inside its arena, and the operands of every command
// are as large as what the command accesses. Machine code is not examined. An Error names the table
// and the entry that is wrong.
Result<void> verifyPlan(const plan::Plan &plan);

} // namespace lmc
