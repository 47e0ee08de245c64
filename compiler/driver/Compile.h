// Compiles a job: runs the phases in order and searches for a plan within the budget.
#pragma once

#include "compiler/phases/Phases.h"
#include "ground/config/Config.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>
#include <vector>

namespace lmc {

struct CompileResult {
  mlir::OwningOpRef<mlir::ModuleOp> module; // after the last phase that ran
  std::string plan;                         // the bytes of the plan file; "" before Emit
  std::vector<PhaseTime> times;             // per phase, summed over all attempts and all threads
  uint64_t budgetBytes = 0;                 // the budget of the plan; 0: no limit
  bool fits = true; // false: the plan exceeds the budget. It is then the smallest one, without code
  uint64_t smallestBudget = 0; // if it does not fit: the minimum budget that would work
};

// Compiles the job `config`. Reports every failure to the diagnostics of `context`. A plan that
// exceeds the budget is no failure (see `fits`).
mlir::FailureOr<CompileResult> compile(const Config &config, const CompileOptions &options,
                                       mlir::MLIRContext &context);

} // namespace lmc
