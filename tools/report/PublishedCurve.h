// A published loss curve, which the report shows beside runs.
#pragma once

#include "ground/support/Result.h"
#include "tools/report/Line.h"

#include <string>

namespace lmc {

struct PublishedCurve {
  std::string name; // name of the file without its ending
  Line line;        // has only tokens: its steps are the numbers of its points
};

// Reads a CSV file: a header that names the columns "tokens" and "loss", in any order and with
// others beside them, then a line for each point, with tokens that rise. Fields hold no commas.
// Error: anything else.
Result<PublishedCurve> readPublishedCurve(const std::string &path);

} // namespace lmc
