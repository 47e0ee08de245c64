// Computes which steps each phase of a run ([[phase]]) has.
#pragma once

#include "ground/plan/PlanFile.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

// The key of the phase's name in a checkpoint's extra state.
inline constexpr const char *kPhase = "phase";

// The steps (firstStep, lastStep] of a run that use one program of its plan.
struct RunPhase {
  size_t index = 0; // in PlanFile::phases()
  std::string name; // "" for a run without phases
  uint64_t firstStep = 0, lastStep = 0;
};

// Returns the phases of a run of `plan` that ends with step `totalSteps`. The last phase ends
// there, and earlier ones end there at the latest. A run without phases has one.
std::vector<RunPhase> phasesOf(const PlanFile &plan, uint64_t totalSteps);

// Returns the number of the phase that trains the step after `step` or, if `isDone`, that trained
// `step`.
size_t phaseAt(const std::vector<RunPhase> &phases, uint64_t step, bool isDone);

} // namespace lmc
