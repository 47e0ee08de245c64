// What a function and its plan leave in memory, by brute force: the judge of CheckAliasing.
//
// Every byte of memory is a 64-bit token. Arithmetic is hashing: an op's result is a hash of
// the op and its operands, so that whoever reads one wrong byte gets another result. Both
// forms run element by element, and nothing is shared with the code that is judged.
//
// Where a command's order of reads and writes is not promised, the interpreter picks one that
// hurts: a library call scribbles over its results before it reads; a kernel runs its items in
// any order, and an item its row in steps of any width, loads before stores.
#pragma once

#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace lmc {

using ByteTokens = std::vector<uint64_t>;

// The arena of the state after `function`, variables lying where `placed` says.
ByteTokens runFunction(mlir::func::FuncOp function, mlir::ModuleOp placed);

// The same after `planned`. `seed` picks the order of items and what unwritten memory holds.
// None when a command reaches outside of an arena.
std::optional<ByteTokens> runPlan(plan_ir::FunctionOp planned, uint64_t seed);

} // namespace lmc
