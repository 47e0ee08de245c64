// What a whole plan costs on a device: the roofline of every command, added up.
//
// A plan's commands run one after another (a plan has no event that would say what may
// overlap), so a function takes the sum of its commands, and a step takes
//
//   micro_first + (GAS - 2) micro + micro_last + optimizer     (GAS 1: without the middle)
//
// of one device. Stable: planCost, PlanCost, workOf, runsPerStep.
#pragma once

#include "compiler/cost/Roofline.h"

#include "plan_generated.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace lmc::cost {

struct FunctionCost {
  double seconds = 0; // of one run
  uint64_t runsPerStep = 0;
  std::vector<Estimate> commands;         // in the plan's order
  std::array<double, 4> secondsByBound{}; // by Bound
};

// All launches of a kernel in a step. What a command of several kernels costs is shared equally.
struct KernelCost {
  uint64_t launches = 0;
  double seconds = 0;
  Estimate launch; // one of them
};

struct PlanCost {
  std::vector<FunctionCost> functions; // as in the plan
  std::vector<KernelCost> kernels;     // as in the plan
  double stepSeconds = 0;
  double tokensPerSecond = 0; // of one device
  double peakFlops = 0;       // dense, of the compute dtype: what MFU divides by
  double mfuCausal = 0, mfuFull = 0;
};

PlanCost planCost(const plan::Plan &plan, const DeviceSpec &spec);

// What a command does, as the roofline sees it.
Work workOf(const plan::Plan &plan, const plan::Command &command);

// How often a step runs the function of this name.
uint64_t runsPerStep(std::string_view function, uint64_t gradientAccumulationSteps);

// The shape of the model, from the settings that the plan carries; nothing for a plan
// that was made without them.
std::optional<ModelConfig> modelOf(const plan::Plan &plan);

// The text of a setting that the plan carries; "" when it does not.
std::string_view settingOf(const plan::Plan &plan, std::string_view key);

DataType dataType(plan::DType dtype);

} // namespace lmc::cost
