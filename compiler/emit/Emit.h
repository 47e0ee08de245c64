// The last phase: converts the plan dialect and the kernels' code to the plan file.
#pragma once

#include "compiler/kernels/Target.h"
#include "ground/config/Config.h"
#include "models/decoder/Counts.h"
#include "plan_generated.h"

#include "mlir/IR/BuiltinOps.h"

#include <nlohmann/json.hpp>

#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// Contents of a plan that are neither in the module nor in the job's configuration.
struct PlanDetails {
  std::string target;                        // "cpu:x86-64-v3", "cuda:sm_90a"
  const codegen::TargetCode *code = nullptr; // null: kernels are planned, but have no code
  std::string deviceSpec;                    // name or path (DeviceSpec.h); "": none
  double peakFlops = 0;              // peak FLOP/s of the spec's device in the compute dtype
  std::optional<ModelCounts> counts; // parameters, FLOPs (0 in the plan if absent), least traffic
  uint64_t memoryBudget = 0;                 // bytes; 0: none
  nlohmann::json reports = nlohmann::json::object(); // the reports by name: "recompute", "fusion"
  // If true, only the bytes and times of the plan are needed. The plan then has no settings,
  // variables, kernel texts or fingerprint.
  bool onlyMeasures = false;
  // The link rates behind the predicted times. Empty if there is one rank or no device spec.
  std::vector<plan::LinkT> links;
  std::vector<plan::AxisSpeedT> axisSpeeds;
  // Predicted seconds: seconds[f][c] is for command c of function f. Empty if unknown.
  std::vector<std::vector<double>> seconds;
};

inline PlanDetails measuredDetails() {
  PlanDetails details;
  details.onlyMeasures = true;
  return details;
}

// Writes the plan file of `module` (plan dialect, with its kern.kernel ops) to `bytes`: the
// FlatBuffer of ground/plan/plan.fbs and its trailer.
mlir::LogicalResult emitPlan(mlir::ModuleOp module, const Config &config,
                             const PlanDetails &details, std::string &bytes);

// Joins the plans of a run's training phases. Returns the first plan file, which then contains all
// other plan files (TrainingPhase of ground/plan/plan.fbs). `plans` has a plan file per phase.
std::string joinPhases(const std::deque<PhaseConfig> &phases,
                       const std::vector<std::string> &plans);

} // namespace lmc
