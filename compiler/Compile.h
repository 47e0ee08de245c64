// Driving a compile: the phases, in order, and what is asked of them.
#pragma once

#include "compiler/config/Config.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <optional>
#include <string>
#include <vector>

namespace lmc {

// The phases of a compile. The enum drives --compile-to, --dump-ir and the timing
// report; each phase leaves IR that its verifier accepts.
enum class Phase { Model, Autodiff, Distribute, Memory, Fusion, Schedule, Buffers, Codegen, Emit };

llvm::StringRef phaseName(Phase phase);
std::optional<Phase> parsePhase(llvm::StringRef name);

struct CompileOptions {
  Phase compileTo = Phase::Emit;
  std::string dumpDirectory;               // a numbered .mlir file per phase; "": none
  std::vector<std::string> printIrAfter;   // pass arguments ("kern-form-fusions")
  std::vector<std::string> disableFusion;  // kinds to leave out ("siblings"), for developers
};

struct PhaseTime {
  Phase phase;
  double seconds;
};

struct CompileResult {
  mlir::OwningOpRef<mlir::ModuleOp> module; // after the last phase that ran
  std::string plan;                         // the plan file's bytes; "" before Emit
  std::vector<PhaseTime> times;
};

// Compiles `config`. Diagnostics go to the context's handler; failure means that at
// least one error was reported.
mlir::FailureOr<CompileResult> compile(const Config &config, const CompileOptions &options,
                                       mlir::MLIRContext &context);

// Compiles a module that somebody else made, from phase `from` on: functions of the
// level that `from` expects. `config` gives the target and what the plan says about
// the job.
mlir::FailureOr<CompileResult> compileModule(mlir::OwningOpRef<mlir::ModuleOp> module, Phase from,
                                             const Config &config, const CompileOptions &options);

} // namespace lmc
