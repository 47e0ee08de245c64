// Loss curves that others have published, which the report shows beside runs.
#pragma once

#include "ground/support/Result.h"
#include "tools/report/Line.h"

#include <string>

namespace lmc {

struct PublishedCurve {
  std::string name; // name of the file without its ending
  Line line;        // a point's step is its number in the file; it has tokens, but no seconds
};

// Reads a CSV file with the columns "tokens" and "loss", and maybe others. Tokens must rise from
// line to line; fields must not have commas. Error: the file is not of this form.
Result<PublishedCurve> readPublishedCurve(const std::string &path);

} // namespace lmc
