// Shows runs as one HTML page that needs no other file.
#pragma once

#include "ground/support/Result.h"
#include "tools/report/PublishedCurve.h"
#include "tools/report/RunHistory.h"

#include <string>
#include <vector>

namespace lmc {

struct PageOptions {
  std::string by = "tokens"; // x axis of the page at first: "tokens", "hours" or "steps"
  double writtenAt = 0;      // time that the page shows, in seconds since 1970
  int reloadSeconds = 0;     // seconds after which the page reloads itself; 0: never
};

// Returns the page. Its size does not depend on the lengths of the runs. Texts of the runs (names,
// warnings) are only data in the page, and cannot become HTML or script.
std::string reportPage(const std::vector<RunHistory> &runs,
                       const std::vector<PublishedCurve> &curves, const PageOptions &options);

} // namespace lmc
