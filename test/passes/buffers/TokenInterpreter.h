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
#include <set>
#include <vector>

namespace lmc {

using ByteTokens = std::vector<uint64_t>;

struct FunctionOutcome {
  ByteTokens state;           // the arena of the state
  std::set<uint64_t> results; // hashes of all that an op computed
};

struct PlanOutcome {
  ByteTokens state;
  int unasked = 0;      // results of commands that no op computes
  bool outside = false; // a command reached outside of an arena
};

// Variables lie where `placed` says.
FunctionOutcome runFunction(mlir::func::FuncOp function, mlir::ModuleOp placed);

// `seed` picks the order of items and what unwritten memory holds.
PlanOutcome runPlan(plan_ir::FunctionOp planned, const FunctionOutcome &function, uint64_t seed);

} // namespace lmc
