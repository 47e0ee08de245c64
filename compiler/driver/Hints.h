// Finds what would help a job that does not fit its memory budget.
#pragma once

#include "compiler/driver/Forecast.h"

namespace lmc {

// Returns the section "hints" of a report (docs/explain.md): changes of the job that make its
// smallest plan smaller, most bytes first. `plan` is that smallest plan, and `budget` the bytes that
// it may use. Each change is planned by itself, on the threads of this machine. If none suffices
// alone, the last entry is several changes together, where these suffice. Returns an empty list if a
// changed job cannot be compiled.
nlohmann::json hintsFor(const Config &config, const plan::Plan &plan, uint64_t budget,
                        const CompileOptions &options);

} // namespace lmc
