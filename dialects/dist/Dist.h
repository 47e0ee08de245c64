// The dist dialect; its reference is docs/dialects/dist.md, generated from DistOps.td.
#pragma once

#include "dialects/interfaces/Command.h"
#include "dialects/interfaces/Differentiable.h"
#include "dialects/interfaces/Generated.h"

#include "dialects/dist/DistDialect.h.inc"
#include "dialects/dist/DistEnums.h.inc"

#define GET_OP_CLASSES
#include "dialects/dist/DistOps.h.inc"

namespace lmc::dist {

bool isCollective(mlir::Operation *op);
// Returns true for a collective along `expert`, which exchanges the tokens of experts.
bool isExchange(mlir::Operation *op);

// Returns true for a collective that only starts. A later dist.wait ends it and has its result.
bool isAsync(mlir::Operation *op);

// Returns true if `value` is the result of a collective that may not have ended.
bool isUnfinished(mlir::Value value);

} // namespace lmc::dist
