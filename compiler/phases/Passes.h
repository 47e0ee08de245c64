// The compiler passes of this folder, which Passes.td describes.
#pragma once

#include "mlir/Pass/Pass.h"

namespace lmc {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/phases/Passes.h.inc"

} // namespace lmc
