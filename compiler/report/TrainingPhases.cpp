#include "compiler/report/TrainingPhases.h"

#include "compiler/cost/PlanCost.h"
#include "compiler/kernels/Target.h"
#include "compiler/report/Units.h"
#include "ground/plan/PlannedBytes.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

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
  uint64_t most = 0;
  double hours = 0;
  auto count = [](const json &phase, const char *key) { return phase[key].get<uint64_t>(); };
  for (const json &phase : phases) {
    most = std::max(most, count(phase, "memory_bytes"));
    hours += phase["hours"].get<double>();
    text += fmt::format(
        "  {:<16} {:>16} {:>8} {:>6} {:>5} {:>5} {:>14} {:>12} {:>12.0f} {:>8.2f}\n",
        phase["name"].get<std::string>(),
        fmt::format("{}-{}", count(phase, "first_step"), count(phase, "last_step")),
        count(phase, "sequence_length"), count(phase, "global_batch_size"),
        count(phase, "micro_batch_size"), count(phase, "gradient_accumulation_steps"),
        count(phase, "tokens"), readableBytes(double(count(phase, "memory_bytes"))),
        phase["tokens_per_second_per_device"].get<double>(), phase["hours"].get<double>());
  }
  return text + fmt::format("  the run needs {} at most, and takes {:.2f} hours by the predicted "
                            "times; below is one phase (--phase=NAME chooses)\n\n",
                            readableBytes(double(most)), hours);
}

} // namespace lmc
