// Checks a run's token files before the first step.
#pragma once

#include "runtime/loop/Phases.h"
#include "runtime/watch/Findings.h"

#include <cstddef>
#include <string>
#include <vector>

namespace lmc {

// Opens the training data of every phase and the validation data, with the --set changes
// `overrides`, and reads a sample of every file. Adds each mistake to `findings`.
void checkData(const PlanFile &job, const std::vector<std::string> &overrides, World &world,
               Findings &findings);

// A start samples at most this many files, because each costs some reads of a disk or a network.
inline constexpr size_t kFilesAtStart = 64;

// Returns min(count, most) of the numbers 0 ... count - 1, ascending and evenly spaced.
std::vector<size_t> spreadOver(size_t count, size_t most);

// Samples at most kFilesAtStart files, and returns the warnings. Leaves out small files, because
// training soon reads them whole.
std::vector<std::string> sampleAtStart(const Session &session, const DataSource &data);

} // namespace lmc
