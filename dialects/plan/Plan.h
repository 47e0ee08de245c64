// The plan dialect; its reference is docs/dialects/plan.md, generated from PlanOps.td.
#pragma once

#include "dialects/interfaces/Command.h"
#include "dialects/interfaces/Generated.h"
#include "dialects/lm/Lm.h"

#include "dialects/plan/PlanDialect.h.inc"
#include "dialects/plan/PlanEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/plan/PlanAttributes.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/plan/PlanTypes.h.inc"

#define GET_OP_CLASSES
#include "dialects/plan/PlanOps.h.inc"

namespace lmc::plan_ir {

bool isCollective(mlir::Operation *op);
// Returns true for a collective that runs at the same time as the commands after it.
bool isAsync(mlir::Operation *op);
unsigned axisOf(mlir::Operation *collective);

} // namespace lmc::plan_ir
