// A published loss curve, which the report lays beside runs.
#pragma once

#include "ground/support/Result.h"
#include "tools/report/Line.h"

#include <string>

namespace lmc {

struct PublishedCurve {
  std::string name; // the file's name without its ending
  Line line; // over tokens only: its steps are the numbers of its points, and it has no seconds
};

// Reads a CSV file: a header that names the columns "tokens" and "loss", in any order and with
// others beside them, then a line for each point, with tokens that rise. Fields hold no commas.
// Error: anything else.
Result<PublishedCurve> readPublishedCurve(const std::string &path);

} // namespace lmc
