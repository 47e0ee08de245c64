// Joins the plans of a run's phases into one plan file.
#pragma once

#include "ground/config/Config.h"

#include <deque>
#include <string>
#include <vector>

namespace lmc {

// Returns the first plan file with all others inside it (TrainingPhase of ground/plan/plan.fbs).
// `plans` has one plan file for each entry of `phases`.
std::string joinPhases(const std::deque<PhaseConfig> &phases,
                       const std::vector<std::string> &plans);

} // namespace lmc
