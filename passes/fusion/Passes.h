// The passes of this folder; what each does is written in Passes.td.
#pragma once

#include "compiler/cost/DeviceSpec.h"
#include "passes/fusion/FusionReport.h"

#include "mlir/Pass/Pass.h"

#include <memory>

namespace lmc {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/fusion/Passes.h.inc"

// Does the same as the function without `report`. The pass also appends to `report`, of which it
// keeps a reference, the pairs that it merged and those that it refused to merge.
std::unique_ptr<mlir::Pass> createFormFusionsPass(FormFusionsPassOptions options,
                                                  FusionReport &report);
std::unique_ptr<mlir::Pass> createMergeLaunchesPass(MergeLaunchesPassOptions options,
                                                    FusionReport &report);

} // namespace lmc
