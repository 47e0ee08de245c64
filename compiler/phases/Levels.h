// What the IR holds at the end of each phase. A phase that leaves anything else is an error, so that
// the next phase need not expect it.
#pragma once

#include "compiler/phases/Phases.h"

namespace lmc {

// Reports every op of `module` that has no place in the IR after `phase`, and after the buffers
// phase every slice and variable that does not lie inside its arena or variable. Regions of
// kern.kernel are not looked at: they are the same from the fusion phase on.
mlir::LogicalResult verifyLevel(Phase phase, mlir::ModuleOp module);

} // namespace lmc
