// Parameter groups of the optimizer ([[optimizer.group]]): which parameters a pattern names, and
// the group of a parameter.
#pragma once

#include "ground/config/Config.h"

#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// Returns true if `pattern` names `parameter`: `*` stands for any run of characters, dots too, and
// `?` for one character.
bool matchesPattern(std::string_view pattern, std::string_view parameter);

// Returns those of `parameters` that `pattern` nearly names, for "did you mean": at most `most`,
// the nearest first. Of parameters that differ only in the number of their layer, it returns the
// first.
std::vector<std::string> nearestParameters(std::string_view pattern,
                                           const std::vector<std::string> &parameters, size_t most);

// Returns the group of the parameter with this name; nullptr if it is of none.
const ParameterGroup *groupOf(const OptimizerConfig &optimizer, std::string_view parameter);

} // namespace lmc
