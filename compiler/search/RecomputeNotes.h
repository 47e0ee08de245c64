// The decision of the memory phase as the report "recompute" of a plan (docs/explain.md).
#pragma once

#include "compiler/search/RecomputeSearch.h"

#include <nlohmann/json.hpp>

namespace lmc {

// Reports a choice made without a search: the times are those of the analysis.
nlohmann::json recomputeNotes(const RecomputeOptions &options, llvm::ArrayRef<int64_t> choice);

// Reports the candidate that a search chose, with the times that the probes measured and the
// candidates tried. `microSteps` is the number of micro-steps per step: the seconds of options are
// reported per micro-step.
nlohmann::json recomputeNotes(RecomputeSearch &search, size_t rung, int64_t microSteps);

} // namespace lmc
