// Writes the decision of the memory phase as the report "recompute" of a plan (docs/explain.md).
#pragma once

#include "compiler/search/RecomputeSearch.h"

#include <nlohmann/json_fwd.hpp>

namespace lmc {

// Reports a choice that was made without a search. The seconds in the report are those that
// lm-analyze-recompute predicts.
nlohmann::json recomputeNotes(const RecomputeOptions &options, llvm::ArrayRef<int64_t> choice);

// Reports the candidate that a search chose, and the other candidates whose plans the search
// compiled. `mode` is the job's memory.recompute. `microSteps` is the number of micro-steps per
// optimizer step. The report divides by it, because it gives seconds per micro-step.
nlohmann::json recomputeNotes(RecomputeSearch &search, size_t candidate, llvm::StringRef mode,
                              int64_t microSteps);

// Returns the report "reshard" (docs/explain.md) of the candidate's plan. It lists the layers that
// keep their gathered weights.
nlohmann::json keptWeightsNotes(const RecomputeSearch &search, size_t candidate);

} // namespace lmc
