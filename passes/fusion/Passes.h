// Declares the passes of this folder. Passes.td says what each pass does.
#pragma once

#include "compiler/cost/DeviceSpec.h"
#include "passes/fusion/queue/FusionReport.h"

#include "mlir/Pass/Pass.h"

#include <memory>

namespace lmc {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/fusion/Passes.h.inc"

// Create passes that append the merged and the refused pairs of ops to `report`.
// createMergeLinearsPass appends only refused pairs. `report` must outlive the pass.
std::unique_ptr<mlir::Pass> createMergeLinearsPass(MergeLinearsPassOptions options,
                                                   FusionReport &report);
std::unique_ptr<mlir::Pass> createFormFusionsPass(FormFusionsPassOptions options,
                                                  FusionReport &report);
std::unique_ptr<mlir::Pass> createMergeLaunchesPass(MergeLaunchesPassOptions options,
                                                    FusionReport &report);

} // namespace lmc
