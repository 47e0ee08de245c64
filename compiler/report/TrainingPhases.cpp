// Writes the section `training_phases` of a report.
#include "compiler/cost/PlanCost.h"
#include "compiler/kernels/Target.h"
#include "compiler/report/Explain.h"
#include "compiler/report/Fields.h"
#include "ground/plan/PlanFile.h"
#include "ground/plan/PlannedBytes.h"

#include <fmt/format.h>

#include <algorithm>

using nlohmann::json;

namespace lmc {

json trainingPhasesJson(const PlanFile &file, const cost::DeviceSpec &spec) {
  json phases = json::array();
  for (size_t i = 0; i < file.phases().size(); ++i) {
    const PlanFile::Phase &phase = file.phases()[i];
    const plan::Plan &plan = *file.phasePlan(i);
    const plan::BatchInfo &batch = *plan.batch();
    const cost::PlanCost cost =
        cost::planCost(plan, *codegen::costModelOf(plan.target()->string_view(), spec));
    const uint64_t tokens = batch.global_batch_size() * batch.sequence_length();
    phases.push_back({{"name", phase.name},
                      {"first_step", phase.firstStep + 1},
                      {"last_step", phase.firstStep + phase.steps},
                      {"sequence_length", batch.sequence_length()},
                      {"global_batch_size", batch.global_batch_size()},
                      {"micro_batch_size", batch.micro_batch_size()},
                      {"gradient_accumulation_steps", batch.gradient_accumulation_steps()},
                      {"tokens", phase.steps * tokens},
                      {"memory_bytes", plannedBytes(plan)},
                      {"tokens_per_second_per_device", cost.tokensPerSecond},
                      {"hours", cost.stepSeconds * double(phase.steps) / 3600}});
  }
  return phases;
}

std::string trainingPhasesText(const json &phases) {
  if (phases.empty())
    return "";
  std::string text = fmt::format("phases:\n  {:<16} {:>16} {:>8} {:>6} {:>5} {:>5} {:>14} {:>12} "
                                 "{:>12} {:>8}\n",
                                 "name", "steps", "length", "GBS", "MBS", "GAS", "tokens", "memory",
                                 "tokens/s", "hours");
  double most = 0, hours = 0;
  for (const json &phase : phases) {
    most = std::max(most, number(phase["memory_bytes"]));
    hours += number(phase["hours"]);
    text +=
        fmt::format("  {:<16} {:>16} {:>8} {:>6} {:>5} {:>5} {:>14} {:>12} {:>12.0f} {:>8.2f}\n",
                    word(phase, "name"),
                    fmt::format("{}-{}", number(phase["first_step"]), number(phase["last_step"])),
                    number(phase["sequence_length"]), number(phase["global_batch_size"]),
                    number(phase["micro_batch_size"]), number(phase["gradient_accumulation_steps"]),
                    number(phase["tokens"]), bytesOf(phase["memory_bytes"]),
                    number(phase["tokens_per_second_per_device"]), number(phase["hours"]));
  }
  return text + fmt::format("  the run needs {} at most, and takes {:.2f} hours by the predicted "
                            "times; below is one phase (--phase=NAME chooses)\n\n",
                            readableBytes(most), hours);
}

} // namespace lmc
