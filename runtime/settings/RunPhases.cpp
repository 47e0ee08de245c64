#include "runtime/settings/RunPhases.h"

#include <algorithm>

namespace lmc {

std::vector<RunPhase> phasesOf(const PlanFile &plan, uint64_t totalSteps) {
  if (plan.phases().empty())
    return {{0, "", 0, totalSteps}};
  std::vector<RunPhase> phases;
  for (const PlanFile::Phase &phase : plan.phases())
    phases.push_back({phases.size(), phase.name, std::min(phase.firstStep, totalSteps),
                      std::min(phase.firstStep + phase.steps, totalSteps)});
  phases.back().lastStep = totalSteps;
  return phases;
}

size_t phaseAt(const std::vector<RunPhase> &phases, uint64_t step, bool isDone) {
  for (const RunPhase &phase : phases)
    if (isDone ? step <= phase.lastStep : step < phase.lastStep)
      return phase.index;
  return phases.size() - 1;
}

} // namespace lmc
