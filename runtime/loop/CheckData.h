// The check of a run's token files before the first step.
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

// A start looks at no more files than this: each costs some reads of a disk or a network.
inline constexpr size_t kFilesAtStart = 64;

// Returns `most` of the numbers below `count`, or all if there are no more: in order, evenly
// spread, the first and the last included if `most` is at least 2.
std::vector<size_t> spreadOver(size_t count, size_t most);

// Returns what a start of a run says of a sample of kFilesAtStart of its files: nothing if all is
// well. Files of at most kSampledTokens tokens are left out, because training reads all of them
// soon.
std::vector<std::string> sampleAtStart(const Session &session, const DataSource &data);

} // namespace lmc
