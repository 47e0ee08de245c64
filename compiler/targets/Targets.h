// The list of targets (Targets.def).
#pragma once

namespace lmc::codegen {

// Registers every target (compiler/kernels/Target.h).
void registerTargets();

} // namespace lmc::codegen
