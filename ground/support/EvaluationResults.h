// Reads the results that checkpoint.export_command writes to OUT/evaluations/STEP.
#pragma once

#include "ground/support/Result.h"

#include <map>
#include <string>

namespace lmc {

// The name of an empty file in this folder. It exists once the command has ended with exit code 0.
inline constexpr const char *kEvaluationComplete = "complete";

// Numbers by name, such as "hellaswag/acc,none".
using EvaluationResults = std::map<std::string, double>;

// The maximum number of results that are read.
inline constexpr size_t kMaxEvaluationResults = 1000;

// Reads the finite numbers of all JSON files in `folder` and its subfolders. Joins the names of
// nested objects by "/". If a file has an object "results", as lm-evaluation-harness writes it,
// reads only the numbers in this object. Skips files without a JSON object. Error: the folder
// cannot be read.
Result<EvaluationResults> readEvaluation(const std::string &folder);

} // namespace lmc
