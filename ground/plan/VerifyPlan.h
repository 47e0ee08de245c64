// Verifies the meaning of a plan before anything uses it.
#pragma once

#include "ground/support/Result.h"

#include "plan_generated.h"

namespace lmc {

// Verifies every index, range, shape, enum and name of a plan whose structure FlatBuffers' verifier
// has accepted. Success means that every slice lies inside its arena, and that every command's
// operands are as large as what the command accesses. The machine code of kernels is not examined.
// An error names the table and the entry that is wrong.
Result<void> verifyPlan(const plan::Plan &plan);

} // namespace lmc
