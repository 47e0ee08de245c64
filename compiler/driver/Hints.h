// Finds the changes that would let a job fit its memory budget.
#pragma once

#include "compiler/driver/Forecast.h"

namespace lmc {

// Returns the section "hints" of a report (docs/explain.md). It lists changes that make `plan`, the
// smallest plan of the job, smaller; the largest saving comes first. `budget` is the number of
// bytes that a plan may use. If only several changes together suffice, the last entry has all of
// them. The list is empty if a changed job cannot be compiled.
nlohmann::json hintsFor(const Config &config, const plan::Plan &plan, uint64_t budget,
                        const CompileOptions &options);

} // namespace lmc
