// Reads the results that checkpoint.export_command writes to OUT/evaluations/STEP.
#pragma once

#include "ground/support/Result.h"

#include <string>
#include <utility>
#include <vector>

namespace lmc {

// The name of the empty file that exists once the command has ended with exit code 0.
inline constexpr const char *kEvaluationComplete = "complete";

// Numbers by name, such as "hellaswag/acc,none", in the order of their names.
using EvaluationResults = std::vector<std::pair<std::string, double>>;

// The maximum number of results that are read.
inline constexpr size_t kMaxEvaluationResults = 1000;

// Reads the numbers of all JSON files in `folder` and in the folders in it: those of the object
// "results" if a file has one, as lm-evaluation-harness writes them, else all. The names of nested
// objects are joined by "/". Numbers that are not finite, and files that hold no JSON object, are
// left out. Error: the folder cannot be read.
Result<EvaluationResults> readEvaluation(const std::string &folder);

} // namespace lmc
