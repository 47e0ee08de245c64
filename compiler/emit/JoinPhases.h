// Makes one plan file of the plans of a run's phases.
#pragma once

#include "ground/config/Config.h"

#include <deque>
#include <string>
#include <vector>

namespace lmc {

// Returns the first plan with all others in it (TrainingPhase of ground/plan/plan.fbs). `plans`
// are plan files, one for each of `phases`.
std::string joinPhases(const std::deque<PhaseConfig> &phases,
                       const std::vector<std::string> &plans);

} // namespace lmc
