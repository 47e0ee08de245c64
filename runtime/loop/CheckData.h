// Checks a run's token files before the first step.
#pragma once

#include "runtime/loop/Phases.h"
#include "runtime/watch/Findings.h"

#include <cstddef>
#include <string>
#include <vector>

namespace lmc {

// Opens the training data of every phase and the validation data with the settings of the plan and
// the changes `overrides`, and reads a sample of every file (runtime/data/SampleTokens.h). Adds
// each mistake to `findings`.
void checkData(const PlanFile &job, const std::vector<std::string> &overrides, World &world,
               Findings &findings);

// The maximum number of files that a start samples: each costs some reads of a disk or a network.
inline constexpr size_t kFilesAtStart = 64;

// Returns `most` of the numbers below `count`, or all if there are no more, in order and evenly
// spread. If `most` is at least 2, the first and the last are among them.
std::vector<size_t> spreadOver(size_t count, size_t most);

// Returns the warnings from a sample of kFilesAtStart of a run's files. Files of at most
// kSampledTokens tokens are left out, because training reads all of them soon.
std::vector<std::string> sampleAtStart(const Session &session, const DataSource &data);

} // namespace lmc
