// The phases of a compile, and a runner that applies them to a module.
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

// The phases in order. --compile-to, --dump-ir and the timing report use their names. The IR after
// each phase passes its verifier.
enum class Phase { Model, Autodiff, Distribute, Memory, Fusion, Schedule, Buffers, Codegen, Emit };

llvm::StringRef phaseName(Phase phase);
std::optional<Phase> parsePhase(llvm::StringRef name);

struct CompileOptions {
  Phase compileTo = Phase::Emit;
  // If false, the plan has no code: it is complete for reports, but lmc-run refuses it.
  bool withCode = true;
  // The folder of compiled kernels; with "" nothing is cached.
  std::string kernelCache;
  std::string dumpDirectory; // gets "05.fusion.mlir" and "05.fusion.txt" per phase; "": nothing
  std::vector<std::string> printIrAfter;   // pass arguments ("kern-form-fusions")
  std::vector<std::string> disableFusion;  // kinds to leave out ("siblings"), for developers
  bool reuseMemory = true;                 // false: no two values share bytes, for tests
};

struct PhaseTime {
  Phase phase;
  double seconds;
};

// Runs phases and adds up their times. A phase may run several times.
class PhaseRunner {
public:
  // Keeps references to `config` and `options`.
  PhaseRunner(const Config &config, const CompileOptions &options);

  // Runs the passes of a phase from Autodiff to Buffers. If `isAttempt`, the module is neither
  // dumped nor printed: dumps show only the final plan.
  mlir::LogicalResult run(Phase phase, mlir::ModuleOp module, bool isAttempt = false);

  // Runs work of a phase that is not a pass, and adds its time to the phase.
  mlir::LogicalResult run(Phase phase, llvm::function_ref<mlir::LogicalResult()> work);

  // Writes the module after the phase, and a table of it for people, to the folder named in
  // CompileOptions. `fusions` lists the pairs that the phase merged and refused to merge.
  mlir::LogicalResult dump(Phase phase, mlir::ModuleOp module, const FusionReport &fusions = {});

  std::vector<PhaseTime> times; // in the order of the phases' first runs

  // Reports of the phases, by the report's name in the plan. The runner fills "fusion" for the
  // module that last went through the fusion and schedule phases.
  nlohmann::json reports = nlohmann::json::object();

private:
  const Config &config;
  const CompileOptions &options;
  cost::Rates rates; // of the job's device
};

// Returns the bytes of all arenas of a module after the buffers phase.
uint64_t plannedBytes(mlir::ModuleOp module);

// Returns the name of a mode in lm-apply-recompute, such as "block", for modes other than auto.
llvm::StringRef recomputeModeName(RecomputeMode mode);

} // namespace lmc
