// Finds the changes that would let a job fit its memory budget.
#pragma once

#include "compiler/driver/Forecast.h"

namespace lmc {

// Returns the section "hints" of a report (docs/explain.md): changes of the job that make its
// smallest plan smaller, those that save most bytes first. `plan` is that smallest plan, and
// `budget` the bytes that it may use. Each change is planned by itself, on the threads of this
// machine. If no change suffices alone but several together do, the last entry is these together.
// Returns an empty list if a changed job cannot be compiled.
nlohmann::json hintsFor(const Config &config, const plan::Plan &plan, uint64_t budget,
                        const CompileOptions &options);

} // namespace lmc
