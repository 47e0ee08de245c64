// Parameter groups of the optimizer, [[optimizer.group]].
#pragma once

#include "ground/config/Config.h"

#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// Returns true if `pattern` matches the name `parameter`: `*` stands for any run of characters,
// including dots, and `?` for one character.
bool matchesPattern(std::string_view pattern, std::string_view parameter);

// Returns the `most` names of `parameters` (or fewer) that are nearest to `pattern`, nearest first.
// Of names that differ only in their digits (the layer's number), it returns only the first.
std::vector<std::string> nearestParameters(std::string_view pattern,
                                           const std::vector<std::string> &parameters, size_t most);

// Returns the group of the parameter with this name; nullptr if it belongs to none.
const ParameterGroup *groupOf(const OptimizerConfig &optimizer, std::string_view parameter);

} // namespace lmc
