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

// As without `report`. The pass also appends to `report`, which it refers to, what it merged and
// what it refused to merge.
std::unique_ptr<mlir::Pass> createFormFusionsPass(FormFusionsPassOptions options,
                                                  FusionReport &report);
std::unique_ptr<mlir::Pass> createMergeLaunchesPass(MergeLaunchesPassOptions options,
                                                    FusionReport &report);

} // namespace lmc
