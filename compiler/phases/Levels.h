// The contents of the IR at the end of each phase. A phase that leaves anything else is an error,
// so the next phase need not handle it.
#pragma once

#include "compiler/phases/Phases.h"

namespace lmc {

// Reports every op of `module` that is not allowed after `phase` and, after the buffers phase,
// every slice and variable that does not lie inside its arena or variable. Regions of kern.kernel
// are not examined, because they do not change after the fusion phase.
mlir::LogicalResult verifyLevel(Phase phase, mlir::ModuleOp module);

} // namespace lmc
