// The passes of this folder; what each does is written in Passes.td.
#pragma once

#include "mlir/Pass/Pass.h"

#include <memory>

namespace lmc {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/phases/Passes.h.inc"

} // namespace lmc
