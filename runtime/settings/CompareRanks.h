// Checks, before the first step, that all ranks have the same plan, settings, data and start.
#pragma once

#include "ground/plan/PlanFile.h"
#include "runtime/checkpoint/RecordedRun.h"
#include "runtime/comm/World.h"

#include <string>

namespace lmc {

// Returns an Error on all ranks if a rank has another plan or release than rank 0, or if the number
// of ranks is not the plan's.
Result<void> comparePlans(World &world, const PlanFile &plan);

struct StartingPoint {
  std::string checkpoint; // "": none
  uint64_t step = 0, totalSteps = 0;
  std::string init; // path of the initial weights; "": none
};

// Returns an Error, on all ranks, if a rank has other settings, other data or another starting
// point than rank 0. The Error names the rank and the difference.
Result<void> compareRanks(World &world, const RunIdentity &identity, const StartingPoint &start);

} // namespace lmc
