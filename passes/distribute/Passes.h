// Declares the passes of this folder. Passes.td says what each pass does.
#pragma once

#include "compiler/cost/CostModel.h"

#include "mlir/Pass/Pass.h"

#include <memory>

namespace lmc {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "passes/distribute/Passes.h.inc"

// Creates the pass with a cost model. `group` describes the ranks along the axis `shard`. `model`
// may be null, and must outlive the pass.
std::unique_ptr<mlir::Pass> createExpandMuonPass(ExpandMuonPassOptions options,
                                                 const cost::CostModel *model, cost::Group group);

} // namespace lmc
