// Proves that the commands on placed buffers compute the same as the function on tensors.
//
// plan-assign-buffers lets values share bytes in five ways, and a wrong decision would silently
// train a wrong model. This check does not know how places were chosen. It runs the function and
// the commands side by side, with a symbol for each value: memory maps each byte to (value, byte of
// the value). A command overwrites the bytes of its results with their symbols, and a copy moves
// symbols. Every command must find, byte for byte, the operands of an op of the function that
// computes the same. At the end every variable must contain the value that the function stored, or
// its old contents. The check also covers results that share bytes with operands (OverwriteRule.h),
// live ranges, alignment, and that slices lie in their arenas.
//
// Commands may run in another order than the ops, and a command may run twice, as long as each
// reads the right bytes.
#pragma once

#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace lmc {

// Checks `planned` against `function`. Kernels, variables and arenas are those in the modules of
// the two. Reports the first fault at its command, in one line.
mlir::LogicalResult checkAliasing(mlir::func::FuncOp function, plan_ir::FunctionOp planned);

} // namespace lmc
