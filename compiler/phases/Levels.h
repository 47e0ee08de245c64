// Defines which ops the IR may contain at the end of each phase.
#pragma once

#include "compiler/phases/Phases.h"

namespace lmc {

// Reports every op of `module` that is not allowed after `phase`. After the buffers phase, also
// reports every slice and variable that is not inside its arena or variable. Skips regions of
// kern.kernel.
mlir::LogicalResult verifyLevel(Phase phase, mlir::ModuleOp module);

} // namespace lmc
