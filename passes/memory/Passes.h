// The passes of this folder; what each does is written in Passes.td.
#pragma once

#include "compiler/cost/DeviceSpec.h"

#include "mlir/Pass/Pass.h"

#include <memory>

namespace lmc {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/memory/Passes.h.inc"

} // namespace lmc
