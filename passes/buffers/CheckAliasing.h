// Proves that the commands on placed buffers compute the same as the function on tensors.
//
// The check does not know how the passes chose places. It runs the function and the commands side
// by side on symbols, and records which byte of which value each byte of memory holds. A command
// must compute an op of the function, and read that op's operands. At the end, a variable must
// contain the value that the function stored to it or, without a store, its old contents. The order
// of the commands may differ from the order of the ops.
//
// The check also covers live ranges, alignment, arenas, and results that share bytes with operands
// (OverwriteRule.h).
#pragma once

#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace lmc {

// Checks that `planned` computes the same as `function`. Kernels, variables and arenas come from
// the modules of both. Reports the first mistake at its command, in one line.
mlir::LogicalResult checkAliasing(mlir::func::FuncOp function, plan_ir::FunctionOp planned);

} // namespace lmc
