// Reads the measured times of a plan's commands from a trace that `lmc-run --trace` wrote.
#pragma once

#include "ground/plan/PlanFile.h"
#include "ground/support/Result.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc::plan {

struct MeasuredTimes {
  std::string device;
  uint64_t firstStep = 0, lastStep = 0;
  // The median of the runs of each command, in seconds, by function and command of the plan. Empty
  // for a function that was not run.
  std::vector<std::vector<double>> seconds;
};

// Reads the text of a trace; errors name `path`. Errors: the text is no such trace, or of another
// plan, or lacks a function of an optimizer step.
Result<MeasuredTimes> readMeasuredTimes(const std::string &text, const std::string &path,
                                        const PlanFile &plan);

} // namespace lmc::plan
