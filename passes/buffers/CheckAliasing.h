// Proves that the commands on placed buffers compute the same as the function on tensors.
//
// The check does not know how the passes chose places. It runs the function and the commands side
// by side on symbols, and records which byte of which value each byte of memory holds. A command
// must read the operands of an op that computes the same. At the end, a variable must contain the
// value that the function stored, or its old contents. Commands may run in another order than the
// ops.
//
// The check also covers live ranges, alignment, arenas, and results that share bytes with operands
// (OverwriteRule.h).
#pragma once

#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace lmc {

// Checks `planned` against `function`, with the kernels, variables and arenas in the modules of
// both. Reports the first mistake at its command, in one line.
mlir::LogicalResult checkAliasing(mlir::func::FuncOp function, plan_ir::FunctionOp planned);

} // namespace lmc
