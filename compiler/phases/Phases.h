// The phases of a compile, and running them over a module.
#pragma once

#include "compiler/config/Config.h"
#include "compiler/cost/DeviceSpec.h"

#include "passes/fusion/FusionReport.h"

#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

namespace lmc {

// The enum drives --compile-to, --dump-ir and the timing report; each phase leaves IR that
// its verifier accepts.
enum class Phase { Model, Autodiff, Distribute, Memory, Fusion, Schedule, Buffers, Codegen, Emit };

llvm::StringRef phaseName(Phase phase);
std::optional<Phase> parsePhase(llvm::StringRef name);

struct CompileOptions {
  Phase compileTo = Phase::Emit;
  // Without it the plan has no code: complete for reports, refused by lmc-run.
  bool withCode = true;
  // The folder that keeps compiled kernels; "": none is kept.
  std::string kernelCache;
  std::string dumpDirectory; // gets "05.fusion.mlir" and "05.fusion.txt" per phase; "": nothing
  std::vector<std::string> printIrAfter;   // pass arguments ("kern-form-fusions")
  std::vector<std::string> disableFusion;  // kinds to leave out ("siblings"), for developers
  bool reuseMemory = true;                 // off: every value has bytes of its own, for tests
};

struct PhaseTime {
  Phase phase;
  double seconds;
};

// Runs phases and adds up their times. A phase may run many times.
class PhaseRunner {
public:
  // Keeps references to `config` and `options`.
  PhaseRunner(const Config &config, const CompileOptions &options);

  // Runs the passes of a phase from Autodiff to Buffers. An attempt is not dumped or printed:
  // these show the plan that comes out.
  mlir::LogicalResult run(Phase phase, mlir::ModuleOp module, bool isAttempt = false);

  // Work of a phase that is not passes.
  mlir::LogicalResult run(Phase phase, llvm::function_ref<mlir::LogicalResult()> work);

  // Writes the module as the phase left it, and a table of it for people, into the folder that
  // CompileOptions names. `fusions` is what the phase merged and refused to merge.
  mlir::LogicalResult dump(Phase phase, mlir::ModuleOp module, const FusionReport &fusions = {});

  std::vector<PhaseTime> times; // in the order in which the phases first ran

  // What phases report, by the report's name in the plan. The runner fills "fusion", of the
  // module that went through the fusion and schedule phases last.
  nlohmann::json reports = nlohmann::json::object();

private:
  const Config &config;
  const CompileOptions &options;
  cost::Rates rates; // of the job's device
};

// Bytes of all arenas of a module that went through the buffers phase.
uint64_t plannedBytes(mlir::ModuleOp module);

// "block": what lm-apply-recompute calls a mode that is not left to the search.
llvm::StringRef recomputeModeName(RecomputeMode mode);

} // namespace lmc
