// The check of a run's token files before the first step.
#pragma once

#include "runtime/train/Findings.h"
#include "runtime/train/Phases.h"

#include <string>
#include <vector>

namespace lmc {

// Opens the training data of every phase and the validation data with the settings of the plan and
// the changes `overrides`, and reads a sample of every file (runtime/data/SampleTokens.h). Adds
// each mistake to `findings`.
void checkData(const PlanFile &job, const std::vector<std::string> &overrides, World &world,
               Findings &findings);

// Returns what a start of a run says of a sample of its files: nothing if all is well. Files of at
// most kSampledTokens tokens are left out, because training reads all of them soon.
std::vector<std::string> sampleAtStart(const Session &session, const DataSource &data);

} // namespace lmc
