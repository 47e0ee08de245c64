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

// A phase: the steps (firstStep, lastStep] of a run, which use one program of its plan.
struct RunPhase {
  size_t index = 0; // index in PlanFile::phases()
  std::string name; // "" for a run without phases
  uint64_t firstStep = 0, lastStep = 0;
};

// Returns the phases of a run that ends with step `totalSteps`. A run without phases has one.
std::vector<RunPhase> phasesOf(const PlanFile &plan, uint64_t totalSteps);

// Returns the number of the phase that trains step `step` + 1 or, if `isDone`, step `step`.
size_t phaseAt(const std::vector<RunPhase> &phases, uint64_t step, bool isDone);

} // namespace lmc
