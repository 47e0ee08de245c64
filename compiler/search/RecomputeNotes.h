// What the memory phase decided, as the plan's report "recompute" (docs/explain.md).
#pragma once

#include "compiler/search/RecomputeSearch.h"

#include <nlohmann/json.hpp>

namespace lmc {

// Of a choice that nobody searched for: times are the analysis's.
nlohmann::json recomputeNotes(const RecomputeOptions &options, llvm::ArrayRef<int64_t> choice);

// Of a rung that a search ended with: what the probes measured, and what was tried.
// `microSteps` is the GAS: seconds of options are those of one micro-step.
nlohmann::json recomputeNotes(RecomputeSearch &search, size_t rung, int64_t microSteps);

} // namespace lmc
