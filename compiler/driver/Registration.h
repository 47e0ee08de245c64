// Every dialect and pass, under the names that lmc-opt knows.
#pragma once

#include "mlir/IR/DialectRegistry.h"

namespace lmc {

void registerDialects(mlir::DialectRegistry &registry);
void registerPasses();

} // namespace lmc
