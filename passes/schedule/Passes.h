// Declares the passes of this folder. Passes.td says what each pass does.
#pragma once

#include "mlir/Pass/Pass.h"

namespace lmc {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/schedule/Passes.h.inc"

} // namespace lmc
