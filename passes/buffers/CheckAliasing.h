// Proof that commands on placed buffers compute what the function on tensors says.
//
// plan-place-buffers lets values share bytes in five ways, and a wrong reuse trains a wrong
// model without a word. This check knows nothing of how places were chosen. It runs the
// function and the commands side by side, with symbols for values: memory is a map from
// bytes to (value, bytes of it), a command writes its results' symbols over what was there,
// a copy moves symbols, and every command must find, byte for byte, the operands of an op of
// the function that computes the same. At the end every variable must hold what the function
// stored, or what it held before. Also checked: what a command may do to operands that share
// bytes with its results (see OverwriteRule.h), that slices lie in their arenas, aligned, and
// that their recorded lifetimes are true.
//
// Where commands are in another order than the ops, or one runs twice, but each reads what it
// should, that is no fault.
#pragma once

#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace lmc {

// Checks `planned` against `function`. Kernels, variables and arenas are looked up in the
// modules of the two. The first fault is reported at its command, in one line.
mlir::LogicalResult checkAliasing(mlir::func::FuncOp function, plan_ir::FunctionOp planned);

} // namespace lmc
