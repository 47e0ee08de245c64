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

// Contents of a plan that come neither from the module nor from the job's configuration.
struct PlanDetails {
  std::string target;                        // "cpu:x86-64-v3", "cuda:sm_90a"
  const codegen::TargetCode *code = nullptr; // null: kernels are planned, but have no code
  std::string deviceSpec;                    // name or path (DeviceSpec.h); "": none
  double peakFlops = 0;              // peak FLOP/s of the spec's device in the compute dtype
  std::optional<ModelCounts> counts; // if absent, the plan states zeros
  uint64_t memoryBudget = 0;                 // bytes; 0: none
  nlohmann::json reports = nlohmann::json::object(); // the reports by name: "recompute", "fusion"
  // If true, only the bytes and times of the plan are needed. It then has no settings, variables,
  // texts of kernels or fingerprint.
  bool onlyMeasures = false;
  // The link rates that the predictions assume; empty for one rank and without a spec.
  std::vector<plan::LinkT> links;
  std::vector<plan::AxisSpeedT> axisSpeeds;
  // Predicted seconds, indexed by function and command of the plan; empty if unknown.
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

// Joins the plans of a run's training phases: returns the first plan file with all others inside it
// (TrainingPhase of ground/plan/plan.fbs). `plans` has one plan file for each entry of `phases`.
std::string joinPhases(const std::deque<PhaseConfig> &phases,
                       const std::vector<std::string> &plans);

} // namespace lmc
