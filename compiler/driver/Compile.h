// Driving a compile: the phases in order, and the searches for a plan within the budget.
#pragma once

#include "compiler/phases/Phases.h"
#include "compiler/config/Config.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>
#include <vector>

namespace lmc {

struct CompileResult {
  mlir::OwningOpRef<mlir::ModuleOp> module; // after the last phase that ran
  std::string plan;                         // the plan file's bytes; "" before Emit
  std::vector<PhaseTime> times;             // of all attempts together
  uint64_t budgetBytes = 0;                 // what the plan was to meet; 0: no limit
  // The plan meets the budget. Otherwise it is the smallest that there is, without code, and
  // `smallestBudget` is the least budget with which the job compiles.
  bool fits = true;
  uint64_t smallestBudget = 0;
};

// Compiles `config`. Diagnostics go to the context's handler; failure means that at
// least one error was reported. A plan that does not fit is no failure.
mlir::FailureOr<CompileResult> compile(const Config &config, const CompileOptions &options,
                                       mlir::MLIRContext &context);

// Compiles a module that somebody else made, from phase `from` on: functions of the
// level that `from` expects. `config` gives the target and what the plan says about
// the job.
mlir::FailureOr<CompileResult> compileModule(mlir::OwningOpRef<mlir::ModuleOp> module, Phase from,
                                             const Config &config, const CompileOptions &options);

} // namespace lmc
