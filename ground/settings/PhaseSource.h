// An entry of the list `sources` of a [[phase]]: a source of the training data.
#pragma once

#include "ground/support/Result.h"

#include <optional>
#include <string>

namespace lmc {

struct PhaseSource {
  std::string name;
  std::optional<double> weight; // absent: the weight that [[data.source]] gives
};

// Reads "NAME" or "NAME=WEIGHT". Error: the weight is not a finite number above 0.
Result<PhaseSource> parsePhaseSource(const std::string &text);

} // namespace lmc
