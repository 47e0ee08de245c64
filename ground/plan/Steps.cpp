#include "ground/plan/Steps.h"

#include "ground/plan/Names.h"

namespace lmc::plan {

uint64_t runsPerStep(std::string_view function, uint64_t gas) {
  if (function == names::kMicroFirst || function == names::kOptimizer)
    return 1;
  if (function == names::kMicroLast)
    return gas >= 2 ? 1 : 0;
  if (function == names::kMicro)
    return gas >= 2 ? gas - 2 : 0;
  return 0;
}

double predictedSeconds(const Function &function) {
  double seconds = 0;
  for (const Command *command : *function.commands())
    if (command->stream() == 0)
      seconds += command->predicted_seconds();
  return seconds;
}

double predictedStepSeconds(const Plan &plan) {
  const uint64_t gas = plan.batch()->gradient_accumulation_steps();
  double seconds = 0;
  for (const Function *function : *plan.functions())
    seconds += double(runsPerStep(function->name()->string_view(), gas)) *
               predictedSeconds(*function);
  return seconds;
}

} // namespace lmc::plan
