// The program for a kernel that writes the initial values of variables.
#pragma once

#include "compiler/extract/Program.h"

namespace lmc::extract {

// Returns the largest variable whose initial values `kernel` writes, or null.
const plan::Variable *initializedBy(const plan::Plan &plan, uint32_t kernel);

// Returns the program of the kernel that writes the initial values of `variable`.
llvm::Expected<Program> programOf(const plan::Plan &plan, const plan::Variable &variable);

} // namespace lmc::extract
