// Shows runs as one HTML page, which loads no other file.
#pragma once

#include "ground/support/Result.h"
#include "tools/report/PublishedCurve.h"
#include "tools/report/RunHistory.h"

#include <string>
#include <vector>

namespace lmc {

struct PageOptions {
  std::string by = "tokens"; // the x axis at first: "tokens", "hours" or "steps"
  double writtenAt = 0;      // seconds since 1970, which the page shows
  int reloadSeconds = 0;     // how often the page loads itself again; 0: never
};

// Returns the page. It has at most Line::kMaxPoints points a line, so that its size does not depend
// on the lengths of the runs. Texts of the runs (names, warnings) are in it as data only, and
// cannot become HTML or script.
std::string reportPage(const std::vector<RunHistory> &runs,
                       const std::vector<PublishedCurve> &curves, const PageOptions &options);

} // namespace lmc
