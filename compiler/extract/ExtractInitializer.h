// Makes the extracted program of a kernel that writes the initial values of variables: a separate
// CUDA program that checks and times this kernel (ExtractKernel.h).
#pragma once

#include "compiler/extract/Program.h"

namespace lmc::extract {

// Returns the largest variable whose initial values the kernel with index `kernel` writes; null if
// there is none.
const plan::Variable *initializedBy(const plan::Plan &plan, uint32_t kernel);

// Returns the extracted program for the kernel that writes the initial values of `variable`.
llvm::Expected<Program> programOf(const plan::Plan &plan, const plan::Variable &variable);

} // namespace lmc::extract
