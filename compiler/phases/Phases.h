// The phases of a compile, and a runner that applies them to a module.
#pragma once

#include "compiler/cost/CostModel.h"
#include "compiler/phases/Padding.h"
#include "ground/config/Config.h"

#include "passes/fusion/queue/FusionReport.h"

#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <nlohmann/json.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace mlir {
class PassManager;
} // namespace mlir

namespace lmc {

// The phases, in order. After each phase, verifyLevel() checks the IR.
enum class Phase { Model, Autodiff, Distribute, Memory, Fusion, Schedule, Buffers, Codegen, Emit };

llvm::StringRef phaseName(Phase phase);
std::optional<Phase> parsePhase(llvm::StringRef name);

struct CompileOptions {
  Phase compileTo = Phase::Emit;
  // If false, the plan has no code. It is complete for reports, but lmc-run refuses it.
  bool withCode = true;
  // The folder that keeps compiled kernels for later compiles; "" for none.
  std::string kernelCache;
  std::string dumpDirectory; // folder for files such as "05.fusion.mlir", one per phase; "": none
  std::vector<std::string> printIrAfter; // names of passes ("kern-form-fusions")
  std::vector<std::string> disableFusion;  // kinds of fusion to disable ("siblings")
  bool reuseMemory = true;                 // false: no two values share bytes (for tests)
  // If true, the caller only measures the plan: its bytes, and times that the caller predicts. So
  // the IR is not verified, and the plan stores no predicted times and lacks some reports.
  bool onlyMeasures = false;
};

// The use of a module after its phases.
enum class PhaseUse {
  Plan,    // it becomes the plan
  Attempt, // it may become the plan: the IR is neither dumped nor printed
  Probe,   // it is only measured: like an attempt, and the IR is not verified
};

struct PhaseTime {
  Phase phase;
  double seconds;
};

// Runs phases and adds up the time of each. Probes (PhaseUse::Probe) may run on several threads at
// once, each on its own module.
class PhaseRunner {
public:
  // The runner keeps references to `config` and `options`.
  PhaseRunner(const Config &config, const CompileOptions &options);

  // Runs the compiler passes of a phase from Autodiff to Buffers.
  mlir::LogicalResult run(Phase phase, mlir::ModuleOp module, PhaseUse use = PhaseUse::Plan);

  // Runs `work` and adds its time to the phase. `work` is not a compiler pass.
  mlir::LogicalResult run(Phase phase, llvm::function_ref<mlir::LogicalResult()> work);

  // Writes two files to CompileOptions::dumpDirectory: the module after the phase, and a table of
  // its contents. `fusions` lists the pairs of ops that the phase merged or refused to merge.
  mlir::LogicalResult dump(Phase phase, mlir::ModuleOp module, const FusionReport &fusions = {});

  std::vector<PhaseTime> times; // one per phase, in the order of their first runs

  // The phases' reports. A key is the name that the report has in the plan.
  nlohmann::json reports = nlohmann::json::object();

  Padding padding; // of the job

private:
  void addPasses(Phase phase, bool checks, FusionReport &fusions, mlir::PassManager &passes);

  std::mutex timesMutex; // guards `times`
  const Config &config;
  const CompileOptions &options;
  cost::Rates rates = cost::kDefaultRates;    // the rates in the job's device spec, if it has one
  std::unique_ptr<cost::CostModel> costModel; // null without a device spec
  uint64_t gemmWorkspaceBytes = cost::DeviceSpec().gemmWorkspaceBytes;
  FusionReport linearFusions; // what the autodiff phase refused to merge
};

// Reports every op of `module` that is not allowed after `phase`. After the buffers phase, also
// reports slices and variables that exceed an arena, VariableRefOps that exceed a variable, and
// launches that do not match their kernel. Skips regions of kern.kernel.
mlir::LogicalResult verifyLevel(Phase phase, mlir::ModuleOp module);

// Returns the text of a .txt file of --dump-ir: a sentence about the phase, then the contents of
// the module. `reports` is PhaseRunner::reports. `fusions` lists the pairs of ops that the phase
// merged or refused to merge.
std::string phaseTable(Phase phase, mlir::ModuleOp module, const nlohmann::json &reports,
                       const FusionReport &fusions);

// Appends `fusions` to the lists "formed" and "refused" of the report "fusion" (docs/explain.md).
void addNotes(const FusionReport &fusions, nlohmann::json &report);

// Returns the sum of the bytes of all arenas of a module after the buffers phase.
uint64_t plannedBytes(mlir::ModuleOp module);

// Returns the option of lm-apply-recompute for a recompute mode, such as "block"; "none" for Auto.
llvm::StringRef recomputeModeName(RecomputeMode mode);

} // namespace lmc
