// The kernels that make the initial values of variables.
#pragma once

#include "compiler/extract/Program.h"

namespace lmc::extract {

// The largest variable whose initial values `kernel` makes; null where it makes none.
const plan::Variable *initializedBy(const plan::Plan &plan, uint32_t kernel);

// The program of the kernel that makes the initial values of `variable`.
llvm::Expected<Program> programOf(const plan::Plan &plan, const plan::Variable &variable);

} // namespace lmc::extract
