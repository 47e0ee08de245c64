// Registers all dialects, targets and compiler passes, under the names that lmc-opt uses.
#pragma once

#include "mlir/IR/DialectRegistry.h"

namespace lmc {

// registerDialects() and registerPasses() call registerTargets().
void registerTargets();
void registerDialects(mlir::DialectRegistry &registry);
void registerPasses();

} // namespace lmc
