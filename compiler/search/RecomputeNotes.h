// Writes the decision of the memory phase as the report "recompute" of a plan (docs/explain.md).
#pragma once

#include "compiler/search/RecomputeSearch.h"

#include <nlohmann/json_fwd.hpp>

namespace lmc {

// Reports a choice that was made without a search. The seconds in the report are those that
// lm-analyze-recompute predicts.
nlohmann::json recomputeNotes(const RecomputeOptions &options, llvm::ArrayRef<int64_t> choice);

// Reports the candidate that a search chose, and all candidates that it compiled to know their
// bytes. `mode` is the job's memory.recompute. `microSteps` is the number of micro-steps per
// optimizer step, because the report gives seconds per micro-step.
nlohmann::json recomputeNotes(RecomputeSearch &search, size_t candidate, llvm::StringRef mode,
                              int64_t microSteps);

// Returns the report "reshard" of a plan (docs/explain.md): the layers that keep their gathered
// weights if the plan is made from this candidate.
nlohmann::json keptWeightsNotes(const RecomputeSearch &search, size_t candidate);

} // namespace lmc
