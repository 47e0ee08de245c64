// Every dialect, target and pass, under the names that lmc-opt knows.
#pragma once

#include "mlir/IR/DialectRegistry.h"

namespace lmc {

// Those of compiler/kernels/Target.h. registerDialects and registerPasses call it.
void registerTargets();
void registerDialects(mlir::DialectRegistry &registry);
void registerPasses();

} // namespace lmc
