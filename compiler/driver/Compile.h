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
  // True if the plan meets the budget. Otherwise the plan is the smallest possible one, without
  // code, and `smallestBudget` is the minimum budget with which the job would compile.
  bool fits = true;
  uint64_t smallestBudget = 0;
};

// Compiles the job `config`. Diagnostics go to the handler of `context`; a failure means that at
// least one error was reported. A plan that exceeds the budget is no failure (see `fits`).
mlir::FailureOr<CompileResult> compile(const Config &config, const CompileOptions &options,
                                       mlir::MLIRContext &context);

// Compiles `module` from phase `from` on. The module must have the form that phase `from` expects.
// `config` gives the target and the facts about the job that a plan stores.
mlir::FailureOr<CompileResult> compileModule(mlir::OwningOpRef<mlir::ModuleOp> module, Phase from,
                                             const Config &config, const CompileOptions &options);

} // namespace lmc
